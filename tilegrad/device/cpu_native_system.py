"""Facts of the operating system for the CPU device's thread pool: how a thread sleeps, and a few
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SLEEP_BY_CONDITION", "SLEEP_BY_FUTEX", "System"]


@dataclass(frozen=True)
class System:
    """Facts about the operating system and the processor that the text needs.

    Attributes:
        futex: number of the futex system call; 0: sleep by a POSIX mutex and condition.
        clock: CLOCK_MONOTONIC.
        set_mask: SIG_SETMASK.
        faults: signals that a thread raises by its own fault; it keeps them, to be reported.
        pause: the intrinsic for a waiting thread, "name(arguments)"; empty: none.
    """

    futex: int
    clock: int
    set_mask: int
    faults: tuple[int, ...]
    pause: str


# park(seen) returns once `epoch` is no longer `seen`, or earlier; wake(n) moves `epoch` on and ends
# at least n sleeps.
SLEEP_BY_FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @park(i32 %seen) nounwind {
  %value = zext i32 %seen to i64
  call i64 (i64, ...) @syscall(i64 $number, ptr @epoch, i64 128, i64 %value, ptr null)
  ret void
}

define internal void @wake(i32 %count) nounwind {
  atomicrmw add ptr @epoch, i32 1 seq_cst
  %value = zext i32 %count to i64
  call i64 (i64, ...) @syscall(i64 $number, ptr @epoch, i64 129, i64 %value)
  ret void
}

define internal void @reset_sleep() nounwind {
  ret void
}
"""


SLEEP_BY_CONDITION = """
@mutex = internal global [128 x i8] zeroinitializer, align 16
@condition = internal global [128 x i8] zeroinitializer, align 16
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal void @park(i32 %seen) nounwind {
entry:
  call i32 @pthread_mutex_lock(ptr @mutex)
  br label %look
look:
  %now = load atomic i32, ptr @epoch seq_cst, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %wait, label %done
wait:
  call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %look
done:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

define internal void @wake(i32 %count) nounwind {
  call i32 @pthread_mutex_lock(ptr @mutex)
  atomicrmw add ptr @epoch, i32 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr @mutex)
  call i32 @pthread_cond_broadcast(ptr @condition)
  ret void
}

define internal void @reset_sleep() nounwind {
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}
"""
