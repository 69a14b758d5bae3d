"""Interface that log formats implement: description, layout, field types, kernels, outputs, replay."""
