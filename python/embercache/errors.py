"""What the package raises: one class for each status code of the core, all of them EmberCacheErrors."""


class EmberCacheError(Exception):
    """Base of all errors of EmberCache. ``retryable``: the same call may succeed later."""

    def __init__(self, message: str = "", retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class InvalidError(EmberCacheError, ValueError):
    """The caller's input is wrong; the message says what would be right."""


class NotFoundError(EmberCacheError, LookupError):
    """Something that was named does not exist. A miss is no error."""


class AlreadyExistsError(EmberCacheError):
    """Something that was to be made exists already."""


class ResourceExhaustedError(EmberCacheError):
    """No memory, pages, queue space or disk now."""


class UnavailableError(EmberCacheError, ConnectionError):
    """A peer or a store does not answer now."""


class DeadlineExceededError(EmberCacheError, TimeoutError):
    """The time given ran out; the outcome may be unknown."""


class CancelledError(EmberCacheError):
    """The caller or a shutdown gave up; also any call to a closed cache."""


class CorruptionError(EmberCacheError):
    """Bytes are not what was written."""


class UnimplementedError(EmberCacheError, NotImplementedError):
    """This build or backend cannot do it."""


class InternalError(EmberCacheError, RuntimeError):
    """A fault of EmberCache or of a store."""


class ForkError(EmberCacheError, RuntimeError):
    """The object was made before the process forked, and this is the child."""
