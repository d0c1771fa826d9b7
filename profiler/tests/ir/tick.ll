; RUN: %opt -leeward-patch=false -passes=leeward-tick,verify -leeward-min-instructions=0 -S %s | FileCheck %s
; RUN: %opt -leeward-patch=false -passes=leeward-tick,leeward-tick,verify -leeward-min-instructions=0 -S %s | FileCheck %s
; RUN: %opt -leeward-patch=false -passes=leeward-tick,verify -S %s | FileCheck %s --check-prefix=FILTER
; RUN: %opt -leeward-patch=false -passes=leeward-tick,verify -leeward-min-instructions=0 -leeward-exclude='excl*,call_?' -S %s | FileCheck %s --check-prefix=EXCLUDE
; RUN: %opt -leeward-patch=false -passes=leeward-tick,verify -leeward-min-instructions=0 -leeward-exclude-file='*/made.c' -S %s | FileCheck %s --check-prefix=FILE
; RUN: %opt -leeward-patch=false -passes=leeward-tick,verify -leeward-min-instructions=0 -leeward-exclude-list=%S/exclude.list -S %s | FileCheck %s --check-prefix=LIST

source_filename = "/src/made.c"
target triple = "x86_64-pc-linux-gnu"

; The clock is read first, on the exit again, and only a difference leads to the run-time.
; CHECK: @__leeward_clock = external dso_local global i64
; CHECK-LABEL: define i32 @leaf(i32 %x)
; CHECK-NEXT: %leeward.start = load volatile i64, ptr @__leeward_clock, align 8
; CHECK-NEXT: %y = add i32 %x, 1
; CHECK-NEXT: %leeward.now = load volatile i64, ptr @__leeward_clock, align 8
; CHECK-NEXT: %[[MOVED:.*]] = icmp ne i64 %leeward.start, %leeward.now
; CHECK-NEXT: br i1 %[[MOVED]], label %[[SLOW:.*]], label %[[OUT:.*]], !prof
; CHECK: [[SLOW]]:
; CHECK-NEXT: %leeward.end = load volatile i64, ptr @__leeward_clock, align 8
; CHECK-NEXT: %[[CALLER:.*]] = call ptr @llvm.returnaddress(i32 0)
; CHECK-NEXT: call preserve_mostcc void @__leeward_tick_slow(i64 %leeward.start, i64 %leeward.end, ptr @leaf, ptr %[[CALLER]])
; CHECK: [[OUT]]:
; CHECK-NEXT: ret i32 %y
; FILTER-LABEL: define i32 @leaf(
; FILTER-NOT: __leeward
; FILTER: ret i32
; FILE-NOT: __leeward
define i32 @leaf(i32 %x) {
  %y = add i32 %x, 1
  ret i32 %y
}

; A loop or a call may last.
; FILTER-LABEL: define i32 @loop(
; FILTER: load volatile i64, ptr @__leeward_clock
define i32 @loop(i32 %n) {
entry:
  br label %again
again:
  %i = phi i32 [ 0, %entry ], [ %next, %again ]
  %next = add i32 %i, 1
  %done = icmp eq i32 %next, %n
  br i1 %done, label %out, label %again
out:
  ret i32 %next
}

; The check comes before a call that must stay a tail call.
; CHECK-LABEL: define i32 @tail(
; CHECK: icmp ne i64 %leeward.start
; CHECK: call preserve_mostcc
; CHECK: musttail call i32 @outside(i32 %x)
; CHECK-NEXT: ret i32
; FILTER-LABEL: define i32 @tail(
; FILTER: load volatile i64, ptr @__leeward_clock
define i32 @tail(i32 %x) {
  %y = musttail call i32 @outside(i32 %x)
  ret i32 %y
}

; Who only looks at something and returns reads no clock; who does more reads it before that, and where the paths come together again
; it has been compared.
; FILTER-LABEL: define i32 @early(
; FILTER: entry:
; FILTER-NEXT: %empty = icmp eq i32 %x, 0
; FILTER-NEXT: br i1 %empty, label %out, label %more
; FILTER: more:
; FILTER-NEXT: %z = add i32 %x, 1
; FILTER-NEXT: %leeward.start = load volatile i64, ptr @__leeward_clock
; FILTER-NEXT: %y = call i32 @outside(i32 %z)
; FILTER: icmp ne i64 %leeward.start
; FILTER: call preserve_mostcc
; FILTER: out:
; FILTER-NOT: __leeward
; FILTER: ret i32
define i32 @early(i32 %x) {
entry:
  %empty = icmp eq i32 %x, 0
  br i1 %empty, label %out, label %more
more:
  %z = add i32 %x, 1
  %y = call i32 @outside(i32 %z)
  br label %out
out:
  %r = phi i32 [ 0, %entry ], [ %y, %more ]
  ret i32 %r
}

; Two calls on ways of their own: the clock is read before they part, not in a loop, and compared on each way out.
; FILTER-LABEL: define i32 @parted(
; FILTER: entry:
; FILTER-NEXT: icmp
; FILTER-NEXT: br i1
; FILTER: more:
; FILTER-NEXT: %odd = trunc i32 %x to i1
; FILTER-NEXT: %leeward.start = load volatile i64, ptr @__leeward_clock
; FILTER-NEXT: br i1 %odd, label %one, label %again
; FILTER: one:
; FILTER: icmp ne i64 %leeward.start
; FILTER: again:
; FILTER-NOT: load volatile
; FILTER: br i1 %done
; FILTER: icmp ne i64 %leeward.start
; FILTER: out:
; FILTER-NOT: __leeward
; FILTER: ret i32 0
define i32 @parted(i32 %x) {
entry:
  %empty = icmp eq i32 %x, 0
  br i1 %empty, label %out, label %more
more:
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %again
one:
  %y = call i32 @outside(i32 %x)
  ret i32 %y
again:
  %i = phi i32 [ 0, %more ], [ %next, %again ]
  %next = add i32 %i, 1
  %done = icmp eq i32 %next, %x
  br i1 %done, label %out, label %again
out:
  ret i32 0
}

; EXCLUDE-LABEL: define void @excluded(
; EXCLUDE-NOT: __leeward
; EXCLUDE-LABEL: define void @call_1(
; EXCLUDE-NOT: __leeward
; EXCLUDE-LABEL: define void @call_10(
; EXCLUDE: __leeward
; LIST-LABEL: define void @excluded(
; LIST-NOT: __leeward
; LIST-LABEL: define void @call_1(
; LIST: __leeward
define void @excluded() {
  call i32 @outside(i32 0)
  ret void
}
define void @call_1() {
  call i32 @outside(i32 1)
  ret void
}
define void @call_10() {
  call i32 @outside(i32 10)
  ret void
}

; Nothing may be inserted here.
; CHECK-LABEL: define void @bare(
; CHECK-NOT: __leeward
; CHECK-LABEL: define void @never(
define void @bare() naked {
  call void asm sideeffect "ret", ""()
  unreachable
}
; CHECK: ret void
define void @never() noprofile {
  ret void
}
; CHECK-LABEL: define ptr @resolver(
; CHECK-NEXT: ret ptr @leaf
@chosen = ifunc i32 (i32), ptr @resolver
define ptr @resolver() {
  ret ptr @leaf
}

; The thread sanitizer is told that another thread writes the clock.
; CHECK-LABEL: define void @sanitized(
; CHECK: load atomic volatile i64, ptr @__leeward_clock monotonic, align 8
define void @sanitized() sanitize_thread {
  call i32 @outside(i32 1)
  ret void
}

; What only passes on to a function is recorded all the same: it may be the name that tells why that function is slow. Not so what
; passes on to a lock.
; FILTER-LABEL: define internal i32 @passes_on(
; FILTER: __leeward
; FILTER-LABEL: define internal i32 @passes_on_twice(
; FILTER: __leeward
; FILTER-LABEL: define i32 @passes_on_for_others(
; FILTER: __leeward
; FILTER-LABEL: define i32 @locks(
; FILTER-NOT: __leeward
; FILTER-LABEL: define internal i32 @passes_out(
; FILTER: __leeward
; FILTER-LABEL: define internal i32 @adds(
; FILTER: __leeward
; FILTER-LABEL: define internal i32 @to_unseen(
; FILTER: __leeward
; FILTER-LABEL: define i32 @ping(
; FILTER: __leeward
; FILTER-LABEL: define i32 @pong(
; FILTER: __leeward
define internal i32 @passes_on(i32 %x) {
  %y = add i32 %x, 1
  %z = tail call i32 @loop(i32 %y)
  ret i32 %z
}
define internal i32 @passes_on_twice(i32 %x) {
  %z = tail call i32 @passes_on(i32 %x)
  ret i32 %z
}
define i32 @passes_on_for_others(i32 %x) {
  %z = tail call i32 @passes_on_twice(i32 %x)
  ret i32 %z
}
define i32 @locks(ptr %lock) {
  %z = tail call i32 @pthread_mutex_lock(ptr %lock)
  ret i32 %z
}
define internal i32 @passes_out(i32 %x) {
  %z = tail call i32 @outside(i32 %x)
  ret i32 %z
}
define internal i32 @adds(i32 %x) {
  %y = tail call i32 @loop(i32 %x)
  %z = add i32 %y, 1
  ret i32 %z
}
define internal i32 @to_unseen(i32 %x) {
  %z = tail call i32 @unseen(i32 %x)
  ret i32 %z
}
define i32 @unseen(i32 %x) noprofile {
  %z = call i32 @outside(i32 %x)
  ret i32 %z
}
define i32 @ping(i32 %x) {
  %z = tail call i32 @pong(i32 %x)
  ret i32 %z
}
define i32 @pong(i32 %x) {
  %z = tail call i32 @ping(i32 %x)
  ret i32 %z
}

; A failed assertion is no call that lasts.
; FILTER-LABEL: define i32 @asserts(
; FILTER-NOT: __leeward
; FILTER: ret i32
define i32 @asserts(i32 %x) {
  %good = icmp ne i32 %x, 0
  br i1 %good, label %goes_on, label %fails
fails:
  call void @abort()
  unreachable
goes_on:
  ret i32 %x
}

declare i32 @outside(i32)
declare i32 @pthread_mutex_lock(ptr)
declare void @abort() noreturn
; CHECK: declare dso_local preserve_mostcc void @__leeward_tick_slow(i64, i64, ptr, ptr) #[[SLOWLY:[0-9]+]]
; CHECK: attributes #[[SLOWLY]] = { cold nounwind nonlazybind }

; A function that only executes few instructions is left alone, with what it calls, and its calls don't last: the way to what may last begins
; behind them. One that comes back to itself has no bound.
; FILTER-LABEL: define i32 @bounded(
; FILTER-NOT: __leeward
; FILTER: ret i32
define i32 @bounded(i32 %x) {
  %y = call i32 @leaf(i32 %x)
  %z = call i32 @leaf(i32 %y)
  ret i32 %z
}
; FILTER-LABEL: define i32 @behind(
; FILTER: call i32 @bounded
; FILTER-NOT: __leeward
; FILTER: out:
; FILTER-NEXT: ret i32
; FILTER: more:
; FILTER-NEXT: %leeward.start = load volatile i64, ptr @__leeward_clock
; FILTER-NEXT: call i32 @outside
define i32 @behind(i32 %x) {
  %y = call i32 @bounded(i32 %x)
  %small = icmp ult i32 %y, 10
  br i1 %small, label %out, label %more
out:
  ret i32 %y
more:
  %z = call i32 @outside(i32 %y)
  ret i32 %z
}
; FILTER-LABEL: define i32 @mutual(
; FILTER: load volatile i64, ptr @__leeward_clock
define i32 @mutual(i32 %x) {
  %y = call i32 @other_way(i32 %x)
  ret i32 %y
}
; FILTER-LABEL: define i32 @other_way(
; FILTER: load volatile i64, ptr @__leeward_clock
define i32 @other_way(i32 %x) {
  %y = call i32 @mutual(i32 %x)
  %z = add i32 %y, 1
  ret i32 %z
}
; A body that another may take the place of says nothing of its length.
; FILTER-LABEL: define i32 @calls_weak(
; FILTER: load volatile i64, ptr @__leeward_clock
define i32 @calls_weak(i32 %x) {
  %y = call i32 @replaced(i32 %x)
  %z = add i32 %y, 1
  ret i32 %z
}
define weak i32 @replaced(i32 %x) {
  ret i32 %x
}
