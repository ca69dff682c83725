"""What nbval compares: neither stderr nor HTML, which name processes and vary with versions; loaded with ``-p``."""

from nbval import plugin

_original = plugin.IPyNbFile.__init__


def _init(self, *args, **kwargs):
    _original(self, *args, **kwargs)
    self.skip_compare = (*self.skip_compare, "stderr", "text/html")


plugin.IPyNbFile.__init__ = _init
