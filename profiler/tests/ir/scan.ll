; RUN: %opt -leeward-patch=false -passes=leeward-scan,verify -leeward-min-instructions=0 -S %s | FileCheck %s

target triple = "x86_64-pc-linux-gnu"

; CHECK-DAG: @__leeward_shadow = external dso_local thread_local(initialexec) global [4 x i64], align 8
; CHECK-DAG: @__leeward_scan_wanted = weak_odr hidden constant i8 1

; Slot, generation, depth, in this order; depth again on the way out. Static allocas stay where they are static.
; CHECK-LABEL: define i32 @plain(
; CHECK: %memory = alloca i32
; CHECK: %[[BELOW:.*]] = load atomic volatile i64
; CHECK: %[[OWN:.*]] = add i64 %[[BELOW]], 1
; CHECK: %[[LIMIT:.*]] = load atomic volatile i64
; CHECK: icmp ult i64 %[[BELOW]], %[[LIMIT]]
; CHECK: %[[GENERATION:.*]] = add i64
; CHECK: store atomic volatile ptr @plain
; CHECK: store atomic volatile i64 %[[GENERATION]]
; CHECK: store atomic volatile i64 %[[GENERATION]], {{.*}} release
; CHECK: store atomic volatile i64 %[[OWN]], {{.*}} release
; CHECK: call i32 @outside
; CHECK: store atomic volatile i64 %[[BELOW]], {{.*}} release
; CHECK-NEXT: ret i32
define i32 @plain(i32 %x) {
  %memory = alloca i32
  store i32 %x, ptr %memory
  %y = call i32 @outside(i32 %x)
  ret i32 %y
}

; Whoever was above is gone when an exception arrives.
; CHECK-LABEL: define i32 @catches(
; CHECK: %[[MINE:.*]] = add i64 %{{.*}}, 1
; CHECK: landingpad
; CHECK: store atomic volatile i64 %[[MINE]], {{.*}} release
define i32 @catches(i32 %x) personality ptr @__gxx_personality_v0 {
  %y = invoke i32 @outside(i32 %x) to label %fine unwind label %thrown
fine:
  ret i32 %y
thrown:
  %what = landingpad { ptr, i32 } catch ptr null
  ret i32 0
}

; The second return of setjmp.
; CHECK-LABEL: define i32 @jumps(
; CHECK: %[[MINE:.*]] = add i64 %{{.*}}, 1
; CHECK: call i32 @setjmp(
; CHECK: store atomic volatile i64 %[[MINE]], {{.*}} release
define i32 @jumps(ptr %where) {
  %how = call i32 @setjmp(ptr %where) returns_twice
  ret i32 %how
}

; CHECK-LABEL: define i32 @tail(
; CHECK: %[[BELOW:.*]] = load atomic volatile i64
; CHECK: store atomic volatile i64 %[[BELOW]], {{.*}} release
; CHECK-NEXT: musttail call i32 @outside(i32 %x)
; CHECK-NEXT: ret i32
define i32 @tail(i32 %x) {
  %y = musttail call i32 @outside(i32 %x)
  ret i32 %y
}

declare i32 @outside(i32)
declare i32 @setjmp(ptr) returns_twice
declare i32 @__gxx_personality_v0(...)
