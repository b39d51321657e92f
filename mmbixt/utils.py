"""What mmengine's hub functions (``get_model``) look for in every package."""


def register_all_modules(init_default_scope: bool = False) -> None:
    """Make the components of mmbixt known, as naming one of them in a config does.

    Args:
        init_default_scope: as other packages have it, without effect: mmbixt extends the scopes of
            mmseg, mmdet and mmpretrain and is no default scope itself.
    """
    import mmbixt.registry  # noqa: F401
