"""Networks by name, and what they take; for the tools, and for ``mmbixt.gpu_check``.

In the package, because the latter works on any machine with a GPU, without a checkout.
"""
