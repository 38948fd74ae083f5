"""Whether pods are given to the kube-scheduler profile that is there: said at the start, before a pod waits."""

from __future__ import annotations

import logging

from aliquot_scheduler.admission.settings import AdmissionSettings

log = logging.getLogger(__name__)


def at_odds(settings: AdmissionSettings) -> str:
    """What comes of it where pods are given to another profile than was installed; empty where they are not."""
    given, installed = settings.scheduler_name, settings.profile
    if not installed or given == installed:
        return ""
    return (
        f"pods are given to scheduler {given} ([admission] scheduler_name), and the profile that was installed is"
        f" called {installed}: unless another kube-scheduler has a profile {given} that asks Aliquot's extender, nobody"
        " looks at them, and they wait with the condition TurnLost; make the two names one"
    )


def who_asks(named: str, settings: AdmissionSettings) -> str:
    """Which scheduler is to ask for a pod that names this one: itself if it is known to, else ours."""
    return named if named in settings.other_schedulers else settings.scheduler_name


def tell_profile(settings: AdmissionSettings) -> None:
    """Say in the log who is to ask for pods."""
    if wrong := at_odds(settings):
        log.warning("no profile is known by the name that pods are given", extra={"reason": wrong})
        return
    known = "" if settings.profile else "some kube-scheduler must have this profile and ask Aliquot's extender"
    log.info("pods are given to a kube-scheduler profile", extra={"profile": settings.scheduler_name, "note": known})
