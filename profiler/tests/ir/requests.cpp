// RUN: %clangxx -O0 -mllvm -leeward-engine=none -mllvm -leeward-request-fn=serve::handle:1,counted,labelled:-:1 -S -emit-llvm %s -o - | FileCheck %s
// RUN: %clangxx -O2 -mllvm -leeward-engine=none -mllvm -leeward-request-fn='serve::*:0' -S -emit-llvm %s -o - 2>&1 | FileCheck %s --check-prefix=WARN
int outside(int);

namespace serve {
// The second argument is the id, also when an exception leaves the function.
// CHECK-LABEL: define {{.*}} @_ZN5serve6handleEdi(
// CHECK: %[[ID:.*]] = zext i32 %{{.*}} to i64
// CHECK: call void @leeward_req_start(i64 %[[ID]], ptr null)
// CHECK: invoke {{.*}} @_Z7outsidei
// CHECK: call void @leeward_req_end(i64 %[[ID]])
// CHECK-NEXT: ret i32
// CHECK: landingpad
// CHECK: call void @leeward_req_end(i64 %[[ID]])
// CHECK-NEXT: resume
// WARN: argument 0 of _ZN5serve6handleEdi is no integer or pointer
int handle(double, int id) { return outside(id); }
} // namespace serve

// CHECK-LABEL: define {{.*}} @counted(
// CHECK: %[[NUMBER:.*]] = call i64 @__leeward_next_request()
// CHECK: call void @leeward_req_start(i64 %[[NUMBER]], ptr null)
extern "C" void counted() { outside(1); }
// CHECK-LABEL: define {{.*}} @labelled(
// CHECK: %[[COUNTED:.*]] = call i64 @__leeward_next_request()
// CHECK: call void @leeward_req_start(i64 %[[COUNTED]], ptr null)
// CHECK: call void @leeward_req_label(i64 %[[COUNTED]], ptr %{{.*}})
extern "C" void labelled(int number, const char *route) { outside(number + !route); }
// CHECK-LABEL: define {{.*}} @_Z5otherv(
// CHECK-NOT: leeward_req
// CHECK: ret void
void other() { outside(2); }
