"""Programs that draw a run's figures as it goes: who is told, and of what."""
