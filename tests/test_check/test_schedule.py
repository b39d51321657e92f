"""Lengths, warm-ups and intervals of a training that do not fit each other."""

import pytest

from mmbixt.check.schedule import schedule_notes


@pytest.mark.parametrize(
    ('loop', 'part', 'is_long'),
    [
        (dict(max_iters=100), dict(by_epoch=False, end=100), False),
        (dict(max_iters=99), dict(by_epoch=False, end=100), True),
        (dict(max_epochs=12), dict(by_epoch=False, end=500), True),  # of 40 iterations
        (dict(max_epochs=5), dict(end=20, convert_to_iter_based=True), True),
        (dict(max_epochs=20), dict(end=20, convert_to_iter_based=True), False),
        (dict(max_iters=99), dict(by_epoch=False, start_factor=1, end_factor=0, end=100), False),
    ],
)
def test_warm_up_longer_than_the_schedule(loop, part, is_long):
    cfg = dict(train_cfg=loop, param_scheduler=[dict(type='LinearLR', **part)])
    assert len([*schedule_notes(cfg, 40)]) == is_long


@pytest.mark.parametrize(
    ('iterations', 'epoch', 'hooks', 'found'),
    [
        (20, None, dict(logger=dict(interval=50)), ['default_hooks.logger.interval=2']),
        (5, 40, {}, ['default_hooks.logger.interval=1']),  # mmengine's default is 10
        (50, None, dict(logger=dict(interval=50)), []),
        (20, 20, dict(logger=dict(interval=50)), []),  # logged at the end of the epoch
    ],
)
def test_a_loss_that_is_not_logged(iterations, epoch, hooks, found):
    cfg = dict(train_cfg=dict(max_iters=iterations), default_hooks=hooks)
    assert [note.split()[-1] for note in schedule_notes(cfg, epoch)] == found


def test_epochs_in_a_training_of_iterations():
    """By mmengine's default, in a config with other data loops."""
    parts = dict(param_scheduler=[dict(type='PolyLR')], train_cfg=dict(max_iters=100))
    cfg = dict(**parts, default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=5)))
    found = [note.split(' counts')[0] for note in schedule_notes(cfg, 40)]
    assert found == ['param_scheduler.0', 'default_hooks.checkpoint']
    cfg['train_cfg'] = dict(max_epochs=100)
    assert [*schedule_notes(cfg, 40)] == []


@pytest.mark.parametrize(
    ('count', 'epoch', 'checkpoint', 'is_between'),
    [
        (4, None, dict(by_epoch=False, interval=8000), False),
        (3, None, dict(by_epoch=False, interval=8000), True),
        (4, 25, dict(interval=1), True),
        (4, None, dict(interval=1), False),  # the length of an epoch is not known
    ],
)
def test_checkpoints_between_two_updates(count, epoch, checkpoint, is_between):
    """Their accumulated gradients are lost."""
    cfg = dict(
        optim_wrapper=dict(accumulative_counts=count), default_hooks=dict(checkpoint=checkpoint)
    )
    notes = [*schedule_notes(cfg, epoch)]
    assert len(notes) == is_between
    assert all(f'a multiple of {count} iterations' in note for note in notes)
