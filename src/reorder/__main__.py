from reorder.cli import main

main()
