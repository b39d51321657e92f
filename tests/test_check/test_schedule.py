"""Lengths, warm-ups and intervals of a training that do not fit each other."""

import pytest

from mmbixt.check.schedule import loop_problems, schedule_notes


def warm_up(**options):
    return dict(param_scheduler=[dict(type='LinearLR', **options)])


def poly(**options):
    schedule = dict(type='PolyLR', by_epoch=False, **options)
    return dict(param_scheduler=schedule, optim_wrapper=dict(optimizer=dict(lr=0.01)))


def phases(*schedules):
    """Of 100 iterations, with a learning rate of 0.001."""
    common = dict(by_epoch=False)
    schedules = [common | schedule for schedule in schedules]
    return dict(param_scheduler=schedules, optim_wrapper=dict(optimizer=dict(lr=1e-3)))


def cosine(**options):
    return dict(type='CosineAnnealingLR', **options)


def hook(name, **options):
    return dict(default_hooks={name: options})


def accumulate(count, **checkpoint):
    return hook('checkpoint', **checkpoint) | dict(optim_wrapper=dict(accumulative_counts=count))


@pytest.mark.parametrize(
    ('loop', 'others', 'epoch', 'expected'),
    [
        (dict(max_iters=100), warm_up(by_epoch=False, end=100), 40, None),
        (dict(max_iters=99), warm_up(by_epoch=False, end=100), 40, '100 iterations, an'),
        (dict(max_epochs=12), warm_up(by_epoch=False, end=500), 40, 'lasts 500 iteration'),
        (dict(max_epochs=5), warm_up(end=20, convert_to_iter_based=True), 40, 'lasts 20 epochs'),
        (dict(max_epochs=20), warm_up(end=20, convert_to_iter_based=True), 40, None),
        (dict(max_iters=99), warm_up(by_epoch=False, start_factor=2, end=100), 40, '0.end = 99'),
        (dict(max_iters=99), poly(end=99), None, None),
        (dict(max_iters=99), poly(end=9), None, 'after 99: from there on the learning rate is 0'),
        (dict(max_iters=99), phases(cosine(end=9, T_max=4)), None, None),  # it rises again
        (dict(max_iters=99), poly(end=300), None, 'PolyLR ends after 300, and training after 99'),
        (dict(max_iters=99), poly(end=99, eta_min=0.01), None, 'rate is 0.01: it does not fall'),
        # one cycle, of which the first phase rises to eta_min
        (
            dict(max_iters=100),
            phases(cosine(end=40, eta_min=1e-2), cosine(begin=40, end=100, eta_min=1e-5)),
            None,
            None,
        ),
        (dict(max_iters=100), phases(cosine(end=40, eta_min=1e-2), cosine(begin=40)), None, None),
        (dict(max_iters=100), phases(cosine(T_max=100, end=1000)), None, None),
        (dict(max_iters=100), phases(cosine(begin=20, T_max=100)), None, '0.T_max = 80'),
        (
            dict(max_iters=99),
            phases(dict(type='MultiStepLR', milestones=range(60, 90))),
            None,
            None,
        ),
        (dict(max_iters=99), poly(begin=99, end=300), None, 'begins at 99, and training ends'),
        (
            dict(max_iters=100),
            phases(dict(type='ConstantLR', factor=0.1, begin=50, end=200)),
            None,
            None,
        ),
        (dict(max_iters=20), hook('logger', interval=50), None, 'hooks.logger.interval=2'),
        (dict(max_iters=5), {}, 40, 'logger.interval=1'),  # mmengine's default is 10
        (dict(max_iters=50), hook('logger', interval=50), None, None),
        (dict(max_iters=20), hook('logger', interval=50), 20, None),  # at the end of the epoch
        (dict(max_iters=100), warm_up(end=5), 40, 'counts in epochs'),
        (dict(max_iters=100), dict(param_scheduler=dict(type='ReduceOnPlateauLR')), 40, None),
        (dict(max_iters=100), hook('checkpoint', interval=5), 40, 'checkpoint counts in epochs'),
        (dict(max_epochs=100), hook('checkpoint', interval=5), 40, None),
        # a checkpoint between two updates lacks accumulated gradients
        ({}, accumulate(4, by_epoch=False, interval=8000), None, None),
        ({}, accumulate(3, by_epoch=False, interval=8000), None, 'a multiple of 3 iterations'),
        ({}, accumulate(4, interval=1), 25, 'a multiple of 4 iterations'),
        ({}, accumulate(4, interval=1), None, None),  # the length of an epoch is not known
    ],
)
def test_notes(loop, others, epoch, expected):
    cfg = dict(train_cfg=loop, **others)
    assert not [x for x in loop_problems(cfg) if 'has no type' not in x]
    notes = [*schedule_notes(cfg, epoch)]
    assert len(notes) == (expected is not None)
    assert all(expected in note for note in notes)
