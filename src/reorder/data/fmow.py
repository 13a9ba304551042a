"""Functional Map of the World, fmow-rgb: satellite images of places in 62 categories."""

import json
from pathlib import Path

from reorder import config
from reorder.data.folders import TRAIN, VALIDATION, Files, class_of, find_labels, find_paths, find_root
from reorder.data.transform import Box, Transform


def fmow(settings: config.Data, transform: Transform) -> tuple[Files, Files, list[str]]:
    """fmow-rgb: <split>/<category>/<category>_<id>/<category>_<id>_<n>_rgb.jpg, each with a JSON file."""
    root = find_root(settings)
    box_of = annotated_box if settings.crop_to_box else None
    splits = []
    for names, list_file in ((TRAIN, settings.train_list), (VALIDATION, settings.validation_list)):
        paths = find_paths(root, names, list_file, "_rgb.jpg")
        paths = [path for path in paths if class_of(path) != "false_detection"]  # in the test set alone
        splits.append(Files(root, paths, find_labels(root, paths, CATEGORIES), transform, box_of))
    return splits[0], splits[1], list(CATEGORIES)


def annotated_box(path: Path) -> Box:
    """The box [left, upper, width, height] that fmow's JSON file gives for the category of an image."""
    file = path.with_suffix(".json")
    try:
        boxes = json.loads(file.read_text())["bounding_boxes"]
        category = path.parent.parent.name
        best = next((box for box in boxes if box.get("category") == category), boxes[0])
        left, upper, width, height = map(float, best["box"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"no box in {file}: {error!r}") from None
    return left, upper, left + width, upper + height


CATEGORIES = [
    "airport",
    "airport_hangar",
    "airport_terminal",
    "amusement_park",
    "aquaculture",
    "archaeological_site",
    "barn",
    "border_checkpoint",
    "burial_site",
    "car_dealership",
    "construction_site",
    "crop_field",
    "dam",
    "debris_or_rubble",
    "educational_institution",
    "electric_substation",
    "factory_or_powerplant",
    "fire_station",
    "flooded_road",
    "fountain",
    "gas_station",
    "golf_course",
    "ground_transportation_station",
    "helipad",
    "hospital",
    "impoverished_settlement",
    "interchange",
    "lake_or_pond",
    "lighthouse",
    "military_facility",
    "multi-unit_residential",
    "nuclear_powerplant",
    "office_building",
    "oil_or_gas_facility",
    "park",
    "parking_lot_or_garage",
    "place_of_worship",
    "police_station",
    "port",
    "prison",
    "race_track",
    "railway_bridge",
    "recreational_facility",
    "road_bridge",
    "runway",
    "shipyard",
    "shopping_mall",
    "single-unit_residential",
    "smokestack",
    "solar_farm",
    "space_facility",
    "stadium",
    "storage_tank",
    "surface_mine",
    "swimming_pool",
    "toll_booth",
    "tower",
    "tunnel_opening",
    "waste_disposal",
    "water_treatment_facility",
    "wind_farm",
    "zoo",
]
