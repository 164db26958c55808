"""The text of the CPU device's thread pool and graph runner, in LLVM IR.

How they work is told in device.cpu_native.

The parts are templates, since systems differ in how a thread sleeps, in a few numbers, and in what
it does while it waits. All state is in the object itself: an object loaded twice is two pools.
"""

from __future__ import annotations

import re
from string import Template

from tilegrad.device.cpu_native_system import SLEEP_BY_CONDITION, SLEEP_BY_FUTEX, System

__all__ = ["MAX_WORKERS", "source", "symbols"]

MAX_WORKERS = 1024
# Kernels keep scratch memory on the stack; some systems give a thread only 128 KiB.
_STACK_BYTES = 8 << 20


_STATE = """
%Job = type { ptr, ptr, i64 }
@ticket = internal global i64 0, align 128
@pending = internal global i64 0, align 8
@job = internal global %Job zeroinitializer, align 8
@sleepers = internal global i32 0, align 128
@epoch = internal global i32 0, align 4
@stopping = internal global i32 0, align 4
@spin_ns = internal global i64 0, align 8
@owner = internal global i32 0, align 128
@wanted = internal global i32 0, align 4
@running = internal global i32 0, align 4
@threads = internal global [$max_workers x i64] zeroinitializer, align 16

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()
"""


_WORKER = """
define internal i64 @nanoseconds() nounwind {
  %time = alloca [2 x i64], align 16
  call i32 @clock_gettime(i32 $clock, ptr %time)
  %seconds = load i64, ptr %time, align 16
  %place = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %place, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; take chunks of the current launch until there are none
define internal void @share() nounwind {
entry:
  br label %take
take:
  %done = phi i64 [0, %entry], [%more, %run]
  %left = atomicrmw sub ptr @ticket, i64 1 acq_rel
  %mine = icmp sgt i64 %left, 0
  br i1 %mine, label %run, label %end
run:
  %job = load %Job, ptr @job, align 8
  %kernel = extractvalue %Job %job, 0
  %args = extractvalue %Job %job, 1
  %chunks = extractvalue %Job %job, 2
  %chunk = sub i64 %chunks, %left
  call void %kernel(ptr %args, i64 %chunk)
  %more = add i64 %done, 1
  br label %take
end:
  %any = icmp ne i64 %done, 0
  br i1 %any, label %report, label %out
report:
  atomicrmw sub ptr @pending, i64 %done acq_rel
  br label %out
out:
  ret void
}

define internal ptr @worker(ptr %unused) nounwind {
entry:
  br label %work
work:
  call void @share()
  br label %watch
watch:
  %since = phi i64 [0, %work], [%since, %idle], [%began, %time]
  %round = phi i64 [1, %work], [%next, %idle], [1, %time]
  %ticket = load atomic i64, ptr @ticket monotonic, align 8
  %job = icmp sgt i64 %ticket, 0
  br i1 %job, label %work, label %idle
idle:
  $pause
  %next = add i64 %round, 1
  %full = icmp ugt i64 %round, 63
  br i1 %full, label %look, label %watch
look:
  %stop = load atomic i32, ptr @stopping acquire, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %exit, label %time
time:
  %now = call i64 @nanoseconds()
  %first = icmp eq i64 %since, 0
  %began = select i1 %first, i64 %now, i64 %since
  %spent = sub i64 %now, %began
  %limit = load atomic i64, ptr @spin_ns monotonic, align 8
  %late = icmp ugt i64 %spent, %limit
  br i1 %late, label %sleep, label %watch
sleep:
  %seen = load atomic i32, ptr @epoch seq_cst, align 4
  atomicrmw add ptr @sleepers, i32 1 seq_cst
  %again = load atomic i64, ptr @ticket seq_cst, align 8
  %came = icmp sgt i64 %again, 0
  %halt = load atomic i32, ptr @stopping seq_cst, align 4
  %halted = icmp ne i32 %halt, 0
  %stay = or i1 %came, %halted
  br i1 %stay, label %awake, label %doze
doze:
  call void @park(i32 %seen)
  br label %awake
awake:
  atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %stop2 = load atomic i32, ptr @stopping acquire, align 4
  %leave2 = icmp ne i32 %stop2, 0
  br i1 %leave2, label %exit, label %work
exit:
  ret ptr null
}
"""

_LAUNCH = """
; start the threads that are missing; the pool is owned. Signals stay with Python's threads, but for
; those of a fault.
define internal void @start() nounwind noinline {
entry:
  %all = alloca [256 x i8], align 16
  %old = alloca [256 x i8], align 16
  %attributes = alloca [256 x i8], align 16
  call i32 @sigfillset(ptr %all)
  $unblock
  call i32 @pthread_sigmask(i32 $set_mask, ptr %all, ptr %old)
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $stack)
  %wanted = load atomic i32, ptr @wanted monotonic, align 4
  br label %next
next:
  %running = load i32, ptr @running
  %missing = icmp slt i32 %running, %wanted
  br i1 %missing, label %create, label %end
create:
  %number = sext i32 %running to i64
  %handle = getelementptr i64, ptr @threads, i64 %number
  %failed = call i32 @pthread_create(ptr %handle, ptr %attributes, ptr @worker, ptr null)
  %refused = icmp ne i32 %failed, 0
  br i1 %refused, label %settle, label %count
count:
  %one_more = add i32 %running, 1
  store i32 %one_more, ptr @running
  br label %next
settle:
  store atomic i32 %running, ptr @wanted monotonic, align 4
  br label %end
end:
  call i32 @pthread_attr_destroy(ptr %attributes)
  call i32 @pthread_sigmask(i32 $set_mask, ptr %old, ptr null)
  ret void
}

; own the pool, with its threads started; or not, if it is taken or has no threads
define internal i1 @acquire() nounwind {
  %wanted = load atomic i32, ptr @wanted monotonic, align 4
  %alone = icmp slt i32 %wanted, 1
  br i1 %alone, label %no, label %try
try:
  %pair = cmpxchg ptr @owner, i32 0, i32 1 acquire monotonic
  %owned = extractvalue { i32, i1 } %pair, 1
  br i1 %owned, label %check, label %no
check:
  %running = load i32, ptr @running
  %missing = icmp slt i32 %running, %wanted
  br i1 %missing, label %begin, label %yes
begin:
  call void @start()
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; all chunks, over the threads; the pool is owned
define internal void @spread(ptr %kernel, ptr %args, i64 %chunks) nounwind {
entry:
  store ptr %kernel, ptr @job
  store ptr %args, ptr getelementptr (%Job, ptr @job, i64 0, i32 1)
  store i64 %chunks, ptr getelementptr (%Job, ptr @job, i64 0, i32 2)
  store atomic i64 %chunks, ptr @pending monotonic, align 8
  store atomic i64 %chunks, ptr @ticket seq_cst, align 8
  %sleepers = load atomic i32, ptr @sleepers seq_cst, align 4
  %some = icmp sgt i32 %sleepers, 0
  br i1 %some, label %count, label %work
count:
  %running = load i32, ptr @running
  %awake = sub i32 %running, %sleepers
  %useful = call i64 @llvm.smin.i64(i64 %chunks, i64 $max_workers)
  %useful32 = trunc i64 %useful to i32
  %others = sub i32 %useful32, 1
  %need = sub i32 %others, %awake
  %short = icmp sgt i32 %need, 0
  br i1 %short, label %call, label %work
call:
  call void @wake(i32 %need)
  br label %work
work:
  call void @share()
  br label %wait
wait:
  %round = phi i32 [0, %work], [%next, %idle], [%next, %yield]
  %left = load atomic i64, ptr @pending acquire, align 8
  %finished = icmp eq i64 %left, 0
  br i1 %finished, label %end, label %idle
idle:
  $pause
  %next = add i32 %round, 1
  %rest = and i32 %next, 1023
  %long = icmp eq i32 %rest, 0
  br i1 %long, label %yield, label %wait
yield:
  call i32 @sched_yield()
  br label %wait
end:
  ret void
}

; all chunks, here; a negative number of them is that of a launch which is not to be spread
define internal void @alone(ptr %kernel, ptr %args, i64 %chunks) nounwind {
entry:
  %minus = sub i64 0, %chunks
  %count = call i64 @llvm.smax.i64(i64 %chunks, i64 %minus)
  br label %next
next:
  %chunk = phi i64 [0, %entry], [%more, %run]
  %left = icmp slt i64 %chunk, %count
  br i1 %left, label %run, label %end
run:
  call void %kernel(ptr %args, i64 %chunk)
  %more = add i64 %chunk, 1
  br label %next
end:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define void @launch(ptr %kernel, ptr %args, i64 %chunks) nounwind {
  %several = icmp sgt i64 %chunks, 1
  br i1 %several, label %try, label %here
try:
  %owned = call i1 @acquire()
  br i1 %owned, label %there, label %here
there:
  call void @spread(ptr %kernel, ptr %args, i64 %chunks)
  store atomic i32 0, ptr @owner release, align 4
  ret void
here:
  call void @alone(ptr %kernel, ptr %args, i64 %chunks)
  ret void
}
"""

_NODE = """
define void @run_node(ptr %node) nounwind {
  %job = load %Job, ptr %node, align 8
  %kernel = extractvalue %Job %job, 0
  %args = extractvalue %Job %job, 1
  %chunks = extractvalue %Job %job, 2
  tail call void @launch(ptr %kernel, ptr %args, i64 %chunks)
  ret void
}
"""

_GRAPH = """
define void @$name(ptr %nodes, i64 %count, ptr %times) nounwind {
entry:
  %owned = call i1 @acquire()
  $start
  br label %next
next:
  %i = phi i64 [0, %entry], [%more, %after]
  $previous
  %left = icmp slt i64 %i, %count
  br i1 %left, label %node, label %end
node:
  %place = getelementptr %Job, ptr %nodes, i64 %i
  %kernel = load ptr, ptr %place
  %second = getelementptr %Job, ptr %place, i64 0, i32 1
  %args = load ptr, ptr %second
  %third = getelementptr %Job, ptr %place, i64 0, i32 2
  %chunks = load i64, ptr %third
  %single = icmp eq i64 %chunks, 1
  br i1 %single, label %once, label %many
once:
  call void %kernel(ptr %args, i64 0)
  br label %after
many:
  %several = icmp sgt i64 %chunks, 1
  %wide = and i1 %owned, %several
  br i1 %wide, label %there, label %here
there:
  call void @spread(ptr %kernel, ptr %args, i64 %chunks)
  br label %after
here:
  call void @alone(ptr %kernel, ptr %args, i64 %chunks)
  br label %after
after:
  $stamp
  %more = add i64 %i, 1
  br label %next
end:
  br i1 %owned, label %release, label %out
release:
  store atomic i32 0, ptr @owner release, align 4
  br label %out
out:
  ret void
}
"""
_TIMED = {
    "start": "%began = call i64 @nanoseconds()",
    "previous": "%before = phi i64 [%began, %entry], [%now, %after]",
    "stamp": """%now = call i64 @nanoseconds()
  %spent = sub i64 %now, %before
  %time = getelementptr i64, ptr %times, i64 %i
  store i64 %spent, ptr %time""",
}

_MANAGE = """
; end the threads and start %wanted, unless the pool stays taken for %tries tries
define i32 @resize(i32 %wanted, i64 %tries) nounwind {
entry:
  br label %try
try:
  %tried = phi i64 [0, %entry], [%more, %taken]
  %pair = cmpxchg ptr @owner, i32 0, i32 1 acquire monotonic
  %owned = extractvalue { i32, i1 } %pair, 1
  br i1 %owned, label %stop, label %taken
taken:
  %more = add i64 %tried, 1
  call i32 @sched_yield()
  %again = icmp slt i64 %more, %tries
  br i1 %again, label %try, label %fail
stop:
  store atomic i32 1, ptr @stopping seq_cst, align 4
  call void @wake(i32 $max_workers)
  %running = load i32, ptr @running
  br label %next
next:
  %i = phi i32 [0, %stop], [%i1, %join]
  %left = icmp slt i32 %i, %running
  br i1 %left, label %join, label %end
join:
  %number = sext i32 %i to i64
  %place = getelementptr i64, ptr @threads, i64 %number
  %handle = load i64, ptr %place
  call i32 @pthread_join(i64 %handle, ptr null)
  %i1 = add i32 %i, 1
  br label %next
end:
  store i32 0, ptr @running
  store atomic i32 0, ptr @stopping monotonic, align 4
  store atomic i32 %wanted, ptr @wanted monotonic, align 4
  store atomic i32 0, ptr @owner release, align 4
  ret i32 1
fail:
  ret i32 0
}

define void @set_spin(i64 %nanoseconds) nounwind {
  store atomic i64 %nanoseconds, ptr @spin_ns monotonic, align 8
  ret void
}

; the state of a pool without threads: at the beginning, and in a forked child, which has but one
define void @reset() nounwind {
  store i32 0, ptr @running
  store i32 0, ptr @sleepers
  store i32 0, ptr @stopping
  store i64 0, ptr @pending
  store i64 0, ptr @ticket
  call void @reset_sleep()
  store atomic i32 0, ptr @owner release, align 4
  ret void
}
"""


def source(system: System) -> str:
    """The whole text; NativePool gives each of its functions a Python face."""
    name, _, arguments = system.pause.partition("(")
    values = {
        "max_workers": MAX_WORKERS,
        "stack": _STACK_BYTES,
        "number": system.futex,
        "clock": system.clock,
        "set_mask": int(system.set_mask),
        "unblock": "\n  ".join(
            f"call i32 @sigdelset(ptr %all, i32 {int(number)})" for number in system.faults
        ),
        "pause": f"call void @{system.pause}" if name else "",
    }
    sleep = SLEEP_BY_FUTEX if system.futex else SLEEP_BY_CONDITION
    plain = Template(_GRAPH).substitute(values, name="run_graph", start="", previous="", stamp="")
    timed = Template(_GRAPH).substitute(values, name="run_graph_timed", **_TIMED)
    texts = [
        Template(text).substitute(values)
        for text in (_STATE, sleep, _WORKER, _LAUNCH, _NODE, _MANAGE)
    ]
    if name:
        texts.append(f"declare void @{name}({'i32' if arguments != ')' else ''})\n")
    return "".join([*texts, plain, timed])


def symbols() -> tuple[str, ...]:
    """The C library functions that the text may call, on any system."""
    text = _STATE + SLEEP_BY_FUTEX + SLEEP_BY_CONDITION
    return tuple(re.findall(r"^declare [^@]*@(\w+)\(", text, re.MULTILINE))
