from reorder.cli.commands import main

main()
