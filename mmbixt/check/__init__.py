"""The mistakes that users make with configs and data."""
