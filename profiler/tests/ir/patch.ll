; RUN: %opt -passes=leeward-tick,verify -leeward-min-instructions=0 -S %s | FileCheck %s
; RUN: %opt -passes=leeward-tick,leeward-tick,verify -leeward-min-instructions=0 -S %s | FileCheck %s
; RUN: %opt -passes=leeward-scan,verify -leeward-min-instructions=0 -S %s | FileCheck %s --check-prefix=SCAN
; RUN: %opt -passes=leeward-tick,verify -leeward-min-instructions=0 -leeward-patch=false -S %s | FileCheck %s --check-prefix=OFF
; RUN: sed 's/x86_64-pc/aarch64-pc/' %s | %opt -passes=leeward-tick,verify -leeward-min-instructions=0 -S - | FileCheck %s --check-prefix=OFF
; RUN: sed 's/;FLAG //' %s | %opt -passes=leeward-tick,verify -leeward-min-instructions=0 -S - | FileCheck %s --check-prefix=OFF

source_filename = "/src/made.c"
target triple = "x86_64-pc-linux-gnu"
;FLAG !llvm.module.flags = !{!0}
;FLAG !0 = !{i32 8, !"cf-protection-branch", i32 1}

; OFF-NOT: .leeward.sleds
; OFF-NOT: prologue
; OFF: load volatile i64, ptr @__leeward_clock

; One entry for each function that has a twin, which goes where its function goes.
; CHECK-DAG: @leaf.leeward.sled = private constant { i32, i32, i32 } { i32 1280791396, {{.*}}@leaf.leeward.entry{{.*}}@leaf.leeward {{.*}}section ".leeward.sleds"{{.*}}no_sanitize_address{{.*}}align 4, !associated !0
; CHECK-DAG: @shared.leeward.sled = private constant {{.*}}section ".leeward.sleds"{{.*}}comdat($shared), align 4
; CHECK-DAG: @llvm.compiler.used = appending global {{.*}}@leaf.leeward.sled
; CHECK-DAG: @leaf.leeward.entry = private alias i32 (i32), ptr @leaf

; CHECK-DAG: @places.leeward = private constant [2 x ptr] [ptr blockaddress(@computes.leeward, %one), ptr blockaddress(@computes.leeward, %two)]
; CHECK-NOT: .leeward.leeward

$shared = comdat any

; The function is as it was, behind a nop; calls within are of functions, not of twins.
; CHECK-LABEL: define i32 @leaf(i32 %x)
; CHECK-SAME: align 8 prologue [5 x i8] c"\0F\1FD\00\00" {
; CHECK-NEXT: %y = add i32 %x, 1
; CHECK-NEXT: ret i32 %y
; CHECK-NEXT: }
define i32 @leaf(i32 %x) {
  %y = add i32 %x, 1
  ret i32 %y
}

; A twin needs no alignment of its own, and no more than the function's.
; CHECK-LABEL: define i32 @aligned(
; CHECK-SAME: align 64 prologue
; CHECK-NEXT: tail call i32 @leaf
define i32 @aligned(i32 %x) align 64 {
  %y = tail call i32 @leaf(i32 %x)
  ret i32 %y
}

; CHECK-LABEL: define linkonce_odr i32 @shared(
; CHECK-SAME: comdat align 8 prologue
define linkonce_odr i32 @shared(i32 %x) comdat {
  ret i32 %x
}

; A table of blocks' addresses that is only this function's and never changes: the twin has its own.
; CHECK-LABEL: define void @computes(
; CHECK-SAME: prologue
; CHECK-NOT: __leeward
; CHECK: getelementptr [2 x ptr], ptr @places,
@places = internal constant [2 x ptr] [ptr blockaddress(@computes, %one), ptr blockaddress(@computes, %two)]
define void @computes(i64 %n) {
  %place = getelementptr [2 x ptr], ptr @places, i64 0, i64 %n
  %where = load ptr, ptr %place
  indirectbr ptr %where, [label %one, label %two]
one:
  ret void
two:
  ret void
}

; One that may change leads into the one body that there is.
; CHECK-LABEL: define void @computed(
; CHECK-NOT: prologue
; CHECK: load volatile i64, ptr @__leeward_clock
@blocks = internal global [2 x ptr] [ptr blockaddress(@computed, %one), ptr blockaddress(@computed, %two)]
define void @computed(i64 %n) {
  %place = getelementptr [2 x ptr], ptr @blocks, i64 0, i64 %n
  %where = load ptr, ptr %place
  indirectbr ptr %where, [label %one, label %two]
one:
  ret void
two:
  ret void
}

; Names can be defined only once; numbers of bytes can be written again, but this isn't looked into.
; CHECK-LABEL: define void @labels(
; CHECK-NOT: prologue
; CHECK: asm sideeffect
define void @labels() {
  call void asm sideeffect "here: nop", ""()
  ret void
}
; CHECK-LABEL: define void @directs(
; CHECK-NOT: prologue
; CHECK: asm sideeffect
define void @directs() {
  call void asm sideeffect "nop\0A\09.globl here", ""()
  ret void
}
; CHECK-LABEL: define void @pauses(
; CHECK-SAME: prologue
define void @pauses() {
  call void asm sideeffect "pause; movsd 0.5, %xmm0", ""()
  ret void
}

; Others have something at the entry.
; CHECK-LABEL: define void @patchable(
; CHECK-NOT: prologue
; CHECK: load volatile i64, ptr @__leeward_clock
define void @patchable() "patchable-function-entry"="2" {
  ret void
}
; CHECK-LABEL: define void @begins(
; CHECK-SAME: prologue i8 -112 {
define void @begins() prologue i8 144 {
  ret void
}

; The twin is what is measured, and speaks of the function.
; CHECK-LABEL: define internal i32 @leaf.leeward(i32 %x)
; CHECK-SAME: section ".text.unlikely.leaf.leeward" {
; CHECK-NEXT: %leeward.start = load volatile i64, ptr @__leeward_clock
; CHECK: call preserve_mostcc void @__leeward_tick_slow(i64 %leeward.start, i64 %leeward.end, ptr @leaf, ptr
; SCAN-LABEL: define internal i32 @leaf.leeward(i32 %x)
; SCAN: store atomic volatile ptr @leaf,
; CHECK-LABEL: define internal i32 @aligned.leeward(
; CHECK: call i32 @leaf(
; CHECK-LABEL: define internal i32 @shared.leeward(
; CHECK-SAME: section ".text.unlikely.shared.leeward" comdat($shared)
; CHECK-LABEL: define internal void @computes.leeward(
; CHECK: getelementptr [2 x ptr], ptr @places.leeward,
; CHECK: !0 = !{ptr @leaf}
