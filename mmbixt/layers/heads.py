def head_width(channels: int, num_heads: int) -> int:
    """Channels of one of the heads that share all channels."""
    if channels % num_heads:
        raise ValueError(f'{channels} channels cannot be split among {num_heads} heads.')
    return channels // num_heads
