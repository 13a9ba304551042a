"""From run directories to what people read; it never imports `training`."""
