"""Interface that a log format implements: description, layout, field types, kernels, outputs, replay."""
