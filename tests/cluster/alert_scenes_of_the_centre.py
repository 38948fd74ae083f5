"""The same of what the centre tells."""

from __future__ import annotations

from cluster.alert_scenes import scene

CALLS = "aliquot_centre_extender_duration_seconds"
ASKED = "aliquot_centre_admission_duration_seconds"

OF_THE_CENTRE = (
    scene(
        "CentreLeaderless",
        "the leader goes, and another comes after minutes",
        {'aliquot_centre_leader{pod="a"}': "1x5 0x15", 'aliquot_centre_leader{pod="b"}': "0x10 1x5"},
        {5: 0, 8: 1, 13: 0},
    ),
    scene("CentreLeaderless", "no replica tells anything", {"up": "1x20"}, {0: 0, 3: 1}),
    scene(
        "CentreLeaderless",
        "leadership changes hands between two scrapes",
        {'aliquot_centre_leader{pod="a"}': "1x5 0x15", 'aliquot_centre_leader{pod="b"}': "0x5 1x15"},
        {6: 0, 8: 0},
    ),
    scene(
        "CentreTwoLeaders",
        "two for some minutes",
        {'aliquot_centre_leader{pod="a"}': "1x20", 'aliquot_centre_leader{pod="b"}': "0x4 1x5 0x5"},
        {5: 0, 7: 1, 13: 0},
    ),
    scene("CentreUndecided", "for minutes", {'aliquot_centre_deciding{pod="a"}': "1x2 0x5 1x5"}, {4: 0, 6: 1, 10: 0}),
    scene("CentreUndecided", "a new leader reads all there is", {"aliquot_centre_deciding": "0 1x9"}, {0: 0, 3: 0}),
    scene(
        "NodesOut",
        "two for long, and some that are cordoned",
        {'aliquot_centre_nodes{state="out"}': "0x2 2x20 0x5", 'aliquot_centre_nodes{state="cordoned"}': "3x40"},
        {16: 0, 20: 1, 26: 0},
    ),
    scene(
        "NodesUnheard",
        "nothing is heard for a minute, and later for long",
        {'aliquot_centre_nodes{state="unheard"}': "0x2 3x1 0x3 3x20 0x5"},
        {5: 0, 11: 0, 16: 1, 32: 0},
    ),
    scene(
        "CertificateEnds",
        "a week from the fifth minute on, and one that lasts",
        {
            'aliquot_centre_certificate_expiry_timestamp_seconds{pod="a"}': "605100x40",
            'aliquot_centre_certificate_expiry_timestamp_seconds{pod="b"}': "9999999x40",
        },
        {5: 0, 14: 0, 18: 1},
    ),
    scene(
        "ClockWrong",
        "one is behind until it is set, one was wrong for a minute, and one is right",
        {
            'aliquot_centre_clock_skew_seconds{pod="a"}': "0x2 -90x12 0x10",
            'aliquot_centre_clock_skew_seconds{pod="b"}': "0x5 400x1 0x20",
            'aliquot_centre_clock_skew_seconds{pod="c"}': "1x30",
        },
        {4: 0, 9: 1, 18: 0},
    ),
    scene(
        "ExtenderSlow",
        "one filter of ten takes longer than a second, all binds less",
        {
            f'{CALLS}_bucket{{verb="filter",outcome="decided",le="1.0"}}': "0+9x30",
            f'{CALLS}_bucket{{verb="filter",outcome="decided",le="2.5"}}': "0+10x30",
            f'{CALLS}_bucket{{verb="filter",outcome="decided",le="+Inf"}}': "0+10x30",
            f'{CALLS}_bucket{{verb="bind",outcome="decided",le="1.0"}}': "0+10x30",
            f'{CALLS}_bucket{{verb="bind",outcome="decided",le="2.5"}}': "0+10x30",
            f'{CALLS}_bucket{{verb="bind",outcome="decided",le="+Inf"}}': "0+10x30",
        },
        {8: 0, 14: 1},
    ),
    scene(
        "ExtenderSlow",
        "calls that nothing could be decided of take long",
        {
            f'{CALLS}_bucket{{verb="filter",outcome="leaderless",le="1.0"}}': "0x40",
            f'{CALLS}_bucket{{verb="filter",outcome="leaderless",le="2.5"}}': "0+10x40",
            f'{CALLS}_bucket{{verb="filter",outcome="leaderless",le="+Inf"}}': "0+10x40",
        },
        {14: 0, 30: 0},
    ),
    scene(
        "ExtenderFails",
        "defects, and refusals, which are answers",
        {
            f'{CALLS}_count{{verb="filter",outcome="defect"}}': "0x3 0+1x20",
            f'{CALLS}_count{{verb="bind",outcome="refused"}}': "0+1x30",
        },
        {6: 0, 12: 1},
    ),
    scene(
        "ExtenderStrangers",
        "one call",
        {f'{CALLS}_count{{outcome="stranger"}}': "0x3 1x30", f'{CALLS}_count{{outcome="decided"}}': "0+5x40"},
        {3: 0, 5: 1, 16: 0},
    ),
    scene(
        "TlsFails",
        "one caller's certificate is out of date, and a scanner knocks",
        {
            'aliquot_centre_tls_failures_total{wrong="their-certificate"}': "0x3 1x30",
            'aliquot_centre_tls_failures_total{wrong="no-tls"}': "0+1x40",
        },
        {3: 0, 5: 1, 16: 0},
    ),
    scene(
        "KubeSchedulerSilent",
        "turns are missed, and nobody calls",
        {
            'aliquot_centre_turns_missed_total{said="nothing"}': "0x3 0+1x30",
            f'{CALLS}_count{{outcome="decided"}}': "5x40",
        },
        {6: 0, 9: 0, 20: 1},
    ),
    scene(
        "KubeSchedulerSilent",
        "no node takes them by what is kube-scheduler's own business, so it does not ask",
        {
            'aliquot_centre_turns_missed_total{said="unschedulable"}': "0x3 0+1x30",
            'aliquot_centre_turns_missed_total{said="nothing"}': "1x40",
            f'{CALLS}_count{{outcome="decided"}}': "5x40",
        },
        {10: 0, 20: 0, 30: 0},
    ),
    scene(
        "KubeSchedulerSilent",
        "turns are missed though kube-scheduler calls",
        {
            'aliquot_centre_turns_missed_total{said="nothing"}': "0x3 0+1x30",
            f'{CALLS}_count{{outcome="decided"}}': "0+1x40",
        },
        {10: 0, 20: 0, 30: 0},
    ),
    scene(
        "SchedulerUnheard",
        "two pods name nobody, and one is let in again for half a minute",
        {"aliquot_centre_unheard_pods": "0x3 2x7 0 2x5 0x20"},
        {4: 0, 7: 0, 10: 1, 13: 1, 23: 0},
    ),
    scene(
        "SchedulerUnheard",
        "it asks before long",
        {"aliquot_centre_unheard_pods": "0x3 2x2 0x20"},
        {6: 0, 9: 0, 12: 0},
    ),
    scene(
        "PodsUngranted",
        "one is bound by hand, and deleted a quarter of an hour later",
        {"aliquot_centre_ungranted_pods": "0x3 1x15 0x20"},
        {4: 0, 7: 0, 11: 1, 18: 1, 23: 0},
    ),
    scene(
        "PodsUngranted",
        "the kubelet has refused it at once",
        {"aliquot_centre_ungranted_pods": "0x3 1x2 0x20"},
        {6: 0, 9: 0, 12: 0},
    ),
    scene(
        "SlicesEvictedByPriority",
        "one goes so, and nobody else for an hour",
        {"aliquot_centre_evictions_by_priority_total": "0x3 1x60"},
        {2: 0, 5: 1, 45: 0},
    ),
    scene(
        "SlicesEvictedByPriority",
        "some went while nobody led, as whoever led next tells from its first word on",
        {"aliquot_centre_evictions_by_priority_total": "_x5 2x60"},
        {4: 0, 7: 1, 32: 1, 40: 0},
    ),
    scene(
        "SlicesEvictedByPriority",
        "another leader has found none",
        {
            'aliquot_centre_evictions_by_priority_total{pod="a"}': "2x40",
            'aliquot_centre_evictions_by_priority_total{pod="b"}': "_x41 0x20",
        },
        {38: 0, 42: 0, 45: 0},
    ),
    scene(
        "SlicesEvictedByPriority",
        "one goes unjudged, others are judged",
        {
            f'{ASKED}_count{{endpoint="spare",outcome="unjudged"}}': "0x3 1x60",
            f'{ASKED}_count{{endpoint="spare",outcome="refused"}}': "0+1x63",
        },
        {2: 0, 5: 1, 45: 0},
    ),
    scene(
        "NothingIsBound",
        "all bindings are refused, other verbs are answered",
        {
            f'{CALLS}_count{{verb="bind",outcome="refused"}}': "0x3 0+1x30",
            f'{CALLS}_count{{verb="bind",outcome="decided"}}': "7x40",
            f'{CALLS}_count{{verb="filter",outcome="decided"}}': "0+2x40",
        },
        {6: 0, 9: 0, 20: 1},
    ),
    scene(
        "NothingIsBound",
        "some are refused",
        {
            f'{CALLS}_count{{verb="bind",outcome="refused"}}': "0x3 0+1x30",
            f'{CALLS}_count{{verb="bind",outcome="decided"}}': "0+1x40",
        },
        {10: 0, 20: 0, 30: 0},
    ),
    scene(
        "WebhookSlow",
        "one pod of ten waits longer than a second",
        {
            f'{ASKED}_bucket{{endpoint="mutate",outcome="allowed",le="1.0"}}': "0+9x30",
            f'{ASKED}_bucket{{endpoint="mutate",outcome="allowed",le="2.5"}}': "0+10x30",
            f'{ASKED}_bucket{{endpoint="mutate",outcome="allowed",le="+Inf"}}': "0+10x30",
            f'{ASKED}_bucket{{endpoint="validate",outcome="allowed",le="1.0"}}': "0+10x30",
            f'{ASKED}_bucket{{endpoint="validate",outcome="allowed",le="2.5"}}': "0+10x30",
            f'{ASKED}_bucket{{endpoint="validate",outcome="allowed",le="+Inf"}}': "0+10x30",
        },
        {8: 0, 14: 1},
    ),
    scene(
        "WebhookSlow",
        "one slow minute among many",
        {
            f'{ASKED}_bucket{{endpoint="mutate",outcome="allowed",le="1.0"}}': "0+10x5 50x1 60+10x30",
            f'{ASKED}_bucket{{endpoint="mutate",outcome="allowed",le="2.5"}}': "0+10x40",
            f'{ASKED}_bucket{{endpoint="mutate",outcome="allowed",le="+Inf"}}': "0+10x40",
        },
        {10: 0, 14: 0, 20: 0},
    ),
    scene(
        "WebhookFails",
        "crowded, and refusals, which are answers",
        {
            f'{ASKED}_count{{endpoint="mutate",outcome="crowded"}}': "0x3 0+1x20",
            f'{ASKED}_count{{endpoint="mutate",outcome="refused"}}': "0+1x30",
        },
        {6: 0, 12: 1},
    ),
    scene(
        "PromisesInDoubt",
        "for ten minutes, beside some that are offered",
        {
            'aliquot_centre_promises{stage="doubtful"}': "0x2 1x9 0x5",
            'aliquot_centre_promises{stage="offered"}': "9x30",
        },
        {7: 0, 9: 1, 14: 0},
    ),
    scene(
        "RuleSetAside",
        "one of two",
        {'aliquot_centre_rules_set_aside{rule="a"}': "0x2 1x5 0x5", 'aliquot_centre_rules_set_aside{rule="b"}': "0x20"},
        {2: 0, 4: 1, 10: 0},
    ),
    scene(
        "RuleFails",
        "one again and again, another once",
        {
            'aliquot_centre_rule_failures_total{rule="a"}': "0x3 0+1x40",
            'aliquot_centre_rule_failures_total{rule="b"}': "0x3 1x40",
        },
        {3: 0, 15: 0, 25: 1},
    ),
    scene(
        "WordsMissing",
        "those of one kind again and again, of another once",
        {
            'aliquot_centre_untold_total{of="pod"}': "0x3 0+1x20 20x40",
            'aliquot_centre_untold_total{of="queue"}': "0x3 1x60",
        },
        {3: 0, 8: 0, 18: 1, 45: 0},
    ),
    scene(
        "ComputeStranded",
        "a quarter of it, for an hour",
        {"aliquot_centre_compute_stranded_gpus": "1x2 10x70 1x5", "aliquot_centre_gpus": "40x90"},
        {60: 0, 66: 1, 75: 0},
    ),
    scene(
        "QueueBelowItsShare",
        "one waits with a quarter of its share until it gets it, one with all of it, and in one nobody waits",
        {
            'aliquot_queue_waiting_pods{queue="poor"}': "3x90",
            'aliquot_queue_used_compute_gpus{queue="poor"}': "1x65 4x20",
            'aliquot_queue_fair_share_compute_gpus{queue="poor"}': "4x90",
            'aliquot_queue_waiting_pods{queue="served"}': "3x90",
            'aliquot_queue_used_compute_gpus{queue="served"}': "4x90",
            'aliquot_queue_fair_share_compute_gpus{queue="served"}': "4x90",
            'aliquot_queue_waiting_pods{queue="idle"}': "0x90",
            'aliquot_queue_used_compute_gpus{queue="idle"}': "0x90",
            'aliquot_queue_fair_share_compute_gpus{queue="idle"}': "4x90",
        },
        {30: 0, 58: 0, 62: 1, 70: 0},
    ),
)
