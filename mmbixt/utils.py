"""A function that mmengine's hub (``get_model``) calls in each package."""


def register_all_modules(init_default_scope: bool = False) -> None:
    """Register the components of mmbixt.

    Args:
        init_default_scope: for compatibility with other packages, without effect: the default scope
            is mmseg, mmdet or mmpretrain.
    """
    import mmbixt.registry  # noqa: F401
