from mmengine.config import Config

from mmbixt.reporting.predictor import without_augmentation


def test_test_time_augmentation_is_taken_off():
    model = dict(type='EncoderDecoder')
    plain, augmented = (dict(dataset=dict(pipeline=[dict(type=kind)])) for kind in 'AB')
    config = Config(dict(model=model, val_dataloader=plain, test_dataloader=augmented))
    assert without_augmentation(config) is config
    config.model = dict(type='SegTTAModel', module=model)
    found = without_augmentation(config)
    assert found.model.type == 'EncoderDecoder'
    assert found.test_dataloader.dataset.pipeline[0].type == 'A'
    assert config.model.type == 'SegTTAModel'
