"""The keys of `data.*`: what is accepted and what is refused."""

import pytest

from reorder.config import Data


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": -1}, r"data.workers must be a finite number of at least 0, got -1"),
        ({"max_broken": -1}, r"data.max_broken must be a finite number of at least 0, got -1"),
        ({"max_pixels": 0}, r"data.max_pixels must be a finite number of at least 1, got 0"),
        ({"held_out": 0}, r"data.held_out must be a finite number of at least 1, got 0"),
        ({"crop_to_box": True}, r"data.crop_to_box is for fmow, not for data.name=digits"),
        ({"stream": True, "name": "imagenet"}, r"data.stream is for hf, not for data.name=imagenet"),
        ({"augment": "cutmix"}, r"data.augment: unknown value 'cutmix'"),
    ],
)
def test_bad_values_are_named(settings, said):
    with pytest.raises(ValueError, match=said):
        Data(**settings)


def test_paths_hold_from_any_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved").mkdir()
    settings = Data(name="hf:saved", root="there", train_list="a.txt", stream=True)
    assert settings.name == f"hf:{tmp_path / 'saved'}"
    assert (settings.root, settings.train_list) == (str(tmp_path / "there"), str(tmp_path / "a.txt"))
    assert settings.validation_list is None
    assert Data(name="hf:somebody/something").name == "hf:somebody/something"
