"""The handle around a node: what every tensor is, who holds a node, sizes, devices and modes."""
