"""What can go wrong with the files of a run. Each message names the file, what it held, and what to do."""


class RunFault(Exception):
    """A run's files are not what they should be: this machine or the command line is at fault, no candidate is."""


class ArchiveError(RunFault):
    """The archive cannot be opened, read or written, or was asked to keep two different contents under one key."""


class CheckpointError(RunFault):
    """No checkpoint could be used, or one was written by another version."""


class RunFolderError(RunFault):
    """There is no run where one was expected, or none can be made there."""
