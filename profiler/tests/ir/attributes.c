// RUN: %clang -O2 -fPIC -finstrument-functions-after-inlining -mllvm -leeward-only-marked -mllvm -leeward-patch=false -S -emit-llvm %s -o - | FileCheck %s
// RUN: %clang -O0 -finstrument-functions-after-inlining -mllvm -leeward-only-marked -mllvm -leeward-patch=false -S -emit-llvm %s -o - | FileCheck %s --check-prefix=O0
// RUN: %clang -O2 -mllvm -leeward-engine=none -S -emit-llvm %s -o - | FileCheck %s --check-prefix=NONE
void outside(int);

// A library may use the program's clock, so it reaches the clock through the GOT.
// CHECK: @__leeward_clock = external global i64
// CHECK-NOT: cyg_profile
// CHECK-LABEL: @measured(
// CHECK: load volatile i64, ptr @__leeward_clock
// O0-LABEL: @measured(
// O0: load volatile i64, ptr @__leeward_clock
// NONE-NOT: __leeward
void measured(void) {
    outside(1);
    outside(2);
}
// CHECK-LABEL: @asked_not_to(
// CHECK-NOT: __leeward_clock
// CHECK: ret void
// O0-LABEL: @asked_not_to(
// O0-NOT: __leeward_clock
// O0: ret void
__attribute__((no_instrument_function)) void asked_not_to(void) {
    outside(1);
    outside(2);
}
// CHECK-LABEL: @annotated(
// CHECK-NOT: __leeward_clock
// CHECK: ret void
__attribute__((annotate("leeward-ignore"))) void annotated(void) {
    outside(1);
    outside(2);
}
// Inlined: it costs nothing.
static inline void small(void) { outside(3); }
// CHECK-LABEL: @uses(
// CHECK-COUNT-3: load volatile i64, ptr @__leeward_clock
// CHECK-NOT: load volatile
// CHECK: attributes
void uses(void) {
    small();
    small();
}
