"""Words for what is told."""


def counted(number: float, noun: str) -> str:
    """A number with its noun: `1 trial`, `8 trials`, `0.5 minutes`."""
    shown = str(number) if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun}{'' if number == 1 else 's'}"
