"""When each alert of daemonset/chart is to wake somebody, and when not: what is told over time, a value a minute.

Values are written as Prometheus' own unit tests write them: `1x4` is five times 1, `0+1x9` counts from 0 to 9, `_` is
a scrape that brought nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One alert, what is told, and how many of it are to be firing at which minute."""

    alert: str
    what: str
    told: Mapping[str, str]
    firing: Mapping[int, int]


def scene(alert: str, what: str, told: Mapping[str, str], firing: Mapping[int, int]) -> Scene:
    """A row of the table."""
    return Scene(alert=f"Aliquot{alert}", what=what, told=told, firing=firing)


OF_NODES = (
    scene(
        "AgentDown",
        "an agent is away for six minutes, and something else for long",
        {'up{job="aliquot-system/aliquot-agent",node="n1"}': "1x4 0x5 1x10", 'up{job="other"}': "0x30"},
        {4: 0, 7: 0, 9: 1, 12: 0},
    ),
    scene(
        "AgentDown",
        "an agent is replaced",
        {'up{job="aliquot-system/aliquot-agent",node="n1"}': "1x4 0x1 1x10"},
        {6: 0, 8: 0, 9: 0},
    ),
    scene(
        "HeartbeatLate",
        "beats, and then none",
        {'aliquot_last_heartbeat_timestamp_seconds{node="n1"}': "0+60x5 300x10"},
        {4: 0, 7: 0, 9: 1},
    ),
    scene(
        "ApiServerUnheard",
        "nothing is heard of pods for some minutes",
        {
            'aliquot_mirror_age_seconds{kind="pods"}': "5x3 200x5 5x5",
            'aliquot_mirror_age_seconds{kind="node"}': "90x20",
        },
        {4: 0, 6: 1, 11: 0},
    ),
    scene(
        "EndpointAway",
        "the endpoint does not let the agent in",
        {
            'aliquot_endpoint_connected{node="n1"}': "1x2 0x5 1x5",
            'aliquot_endpoint_connected{node="n2"}': "1x2 0x1 1x9",
        },
        {2: 0, 4: 0, 6: 1, 10: 0},
    ),
    scene(
        "KubeletDeaf",
        "one of two resources",
        {
            'aliquot_kubelet_listening{resource="aliquot.dev/compute"}': "1x2 0x5 1x5",
            'aliquot_kubelet_listening{resource="aliquot.dev/best-effort"}': "1x20",
        },
        {2: 0, 4: 0, 6: 1, 10: 0},
    ),
    scene(
        "DriverTrouble",
        "for ten minutes",
        {'aliquot_driver_trouble{kind="missing"}': "0x2 1x9 0x5", 'aliquot_driver_trouble{kind="silent"}': "0x30"},
        {7: 0, 9: 1, 14: 0},
    ),
    scene(
        "GpuSick",
        "one falls sick, others are well or degraded",
        {
            'aliquot_gpu_health{gpu="0",health="sick"}': "0x2 1x9 0x5",
            'aliquot_gpu_health{gpu="1",health="healthy"}': "1x30",
            'aliquot_gpu_health{gpu="2",health="degraded"}': "1x30",
        },
        {7: 0, 9: 1, 14: 0},
    ),
    scene(
        "GpuDegraded",
        "for hours, and one that is sick",
        {
            'aliquot_gpu_health{gpu="0",health="degraded"}': "0x2 1x200",
            'aliquot_gpu_health{gpu="1",health="sick"}': "1x300",
        },
        {100: 0, 120: 0, 125: 1},
    ),
    scene(
        "GpuContextTooLarge",
        "of one of two GPUs, until the values are mended",
        {
            'aliquot_gpu_context_too_large{gpu="0"}': "0x2 1x9 0x5",
            'aliquot_gpu_context_too_large{gpu="1"}': "0x30",
        },
        {7: 0, 9: 1, 14: 0},
    ),
    scene(
        "GpuUsedWithoutGrant",
        "by pods, and by the node itself",
        {
            'aliquot_gpu_processes_without_grant{owner="pod"}': "0x2 2x15 0x5",
            'aliquot_gpu_processes_without_grant{owner="host"}': "3x40",
        },
        {11: 0, 14: 1, 21: 0},
    ),
    scene(
        "SliceOverItsMemory",
        "one over it, one just at it",
        {
            'aliquot_slice_memory_used_bytes{pod="a"}': "50x2 150x9 50x5",
            'aliquot_slice_memory_granted_bytes{pod="a"}': "100x30",
            'aliquot_slice_memory_used_bytes{pod="b"}': "100x30",
            'aliquot_slice_memory_granted_bytes{pod="b"}': "100x30",
        },
        {7: 0, 9: 1, 14: 0},
    ),
    scene(
        "SliceOverItsCompute",
        "one all the time, one for a minute",
        {
            'aliquot_slice_compute_used_ratio{pod="a"}': "0.5x5 1x60",
            'aliquot_slice_compute_limit_ratio{pod="a"}': "0.5x70",
            'aliquot_slice_compute_used_ratio{pod="b"}': "0.5x5 1 0.5x60",
            'aliquot_slice_compute_limit_ratio{pod="b"}': "0.5x70",
        },
        {5: 0, 15: 0, 40: 1},
    ),
    scene(
        "LaunchesUnpaid",
        "one again and again until it ends, one some times at once",
        {
            'aliquot_slice_unpaid_launches_total{pod="a"}': "0x5 0+2x40 80x40",
            'aliquot_slice_unpaid_launches_total{pod="b"}': "0x5 15x80",
        },
        {16: 0, 25: 0, 40: 1, 75: 0},
    ),
    scene(
        "UsageUnknown",
        "sampled, and then not",
        {'aliquot_usage_sampled_timestamp_seconds{node="n1"}': "0+60x5 300x20"},
        {5: 0, 12: 0, 16: 1},
    ),
    scene(
        "PacingFails",
        "beat after beat on one node until it ends, and once on another",
        {
            'aliquot_pacing_faults_total{node="n1",kind="ZeroDivisionError"}': "_x5 60+600x9 6000x20",
            'aliquot_pacing_faults_total{node="n2",kind="ValueError"}': "_x5 1x40",
        },
        {5: 0, 7: 0, 8: 1, 21: 0},
    ),
    scene(
        "StartsRefused",
        "again and again on one node, once on another, and many that are not refused",
        {
            'aliquot_rpc_duration_seconds_count{node="n1",rpc="PreStartContainer",outcome="refused"}': "0x5 0+1x40",
            'aliquot_rpc_duration_seconds_count{node="n2",rpc="PreStartContainer",outcome="refused"}': "0x5 1x40",
            'aliquot_rpc_duration_seconds_count{node="n1",rpc="PreStartContainer",outcome="ok"}': "0+5x50",
        },
        {5: 0, 12: 0, 25: 1},
    ),
)
