"""Published weights by name, downloads, safe reading of files, and the road that weights take.

From ``init_cfg`` or ``load_from`` to a model, a function for each step::

    loader.find_file                  a name or a URL to a file, downloaded
    loader.read_file                  the content of the file, without executing it
    state_dict.unwrap                 its weights, without containers and wrappers
    state_dict.rename_whole           those of a whole model of the authors by mmbixt's names
    state_dict.take_part              a part of them, such as 'backbone.', without the prefix
    <family>.convert                  the family's names, without weights that it does not use
    backbones.weights.fit_channels    the first convolution for other images than RGB
    state_dict.compare                with the weights of the model
    backbones.weights.adapt           these three; raises an error if a weight is missing

Backbones and necks take it in ``LoadsFiles.init_weights``, and from ``state_dict.take_part`` on
whenever ``load_state_dict`` is called: by mmengine, by timm, or by ``backbones.weights``'s
``load_whole_state``, which refuses a file that lacks weights of any part of a model.
"""
