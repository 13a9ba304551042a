"""The table of wrong programs fits the source as it is."""

from mutants import MUTANTS, SOURCE, TESTS


def test_every_mutant_changes_one_place_and_names_its_tests():
    for mutant in MUTANTS:
        text = (SOURCE / "reorder" / mutant.file).read_text()
        assert text.count(mutant.old) == 1, mutant
        assert mutant.old != mutant.new, mutant
        assert all((TESTS / test).is_file() for test in mutant.tests.split()), mutant
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS) >= 60
