// C++ on top of leeward.h: permits and locks that end with their scope. Header only, C++17.
#ifndef LEEWARD_HPP
#define LEEWARD_HPP

#include "leeward.h"

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace leeward {

/// An error code of the library.
struct error : std::runtime_error {
    int code;
    explicit error(int of) : std::runtime_error(lw_strerror(of)), code(of) {}
};

inline void check(int code) {
    if (code < 0) throw error(code);
}

/// An admitted request, or a rejection. Ends as abandoned with its scope, unless it was finished.
/// Leave it before another thread gets it: while a thread runs a request, no other can end it.
class permit {
    lw_permit of_{};

public:
    permit() = default;
    explicit permit(const lw_permit &of) : of_(of) {}
    permit(permit &&other) noexcept : of_(std::exchange(other.of_, lw_permit{})) {}
    permit &operator=(permit &&other) noexcept {
        std::swap(of_, other.of_);
        return *this;
    }
    ~permit() { finish(LW_ABANDONED); }
    /// True if the request was admitted and has not ended.
    explicit operator bool() const noexcept { return of_.id != 0; }
    const lw_permit &info() const noexcept { return of_; }
    const char *reason() const noexcept { return lw_reason_name(of_.reason); }
    int enter() noexcept { return lw_enter(&of_); }
    int leave() noexcept { return lw_leave(&of_); }
    int finish(int outcome = LW_DONE) noexcept {
        if (of_.id == 0) return LW_E_STATE;
        int code = lw_finish(&of_, outcome);
        if (code == LW_OK) of_.id = 0; // Another thread may run it now.
        return code;
    }
};

/// A gate, freed with its scope. Its permits must have ended by then.
class gate {
    lw_gate *of_ = nullptr;

public:
    explicit gate(lw_options options) {
        options.size = sizeof options;
        check(lw_gate_new(&of_, &options));
    }
    gate(const gate &) = delete;
    gate &operator=(const gate &) = delete;
    ~gate() { lw_gate_free(of_); }
    lw_gate *get() const noexcept { return of_; }
    /// Throws only if the library is misused; a rejection is a permit that is false.
    permit arrive(lw_arrival arrival) {
        lw_permit decided{};
        arrival.size = sizeof arrival;
        check(lw_arrive(of_, &arrival, &decided));
        return permit(decided);
    }
    std::string stats_json() const { return text(lw_stats_json); }
    std::string explain(uint64_t decision) const {
        return text([decision](const lw_gate *of, char *to, std::size_t length) {
            return lw_explain(of, decision, to, length);
        });
    }

private:
    template <class Write> std::string text(Write write) const {
        std::string whole(4096, '\0');
        int length = write(of_, &whole[0], whole.size());
        while (length >= static_cast<int>(whole.size())) {
            whole.resize(static_cast<std::size_t>(length) + 1);
            length = write(of_, &whole[0], whole.size());
        }
        check(length);
        whole.resize(static_cast<std::size_t>(length));
        return whole;
    }
};

/// A mutex for `std::lock_guard` and `std::unique_lock`; `lock_within` says whether it locked.
class mutex {
    lw_mutex of_;

public:
    /// `name` is a literal.
    explicit mutex(const char *name) : of_{nullptr, name} {}
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;
    ~mutex() { lw_mutex_destroy(&of_); }
    void lock() { check(lw_mutex_lock(&of_)); }
    bool try_lock() noexcept { return lw_mutex_trylock(&of_) == LW_OK; }
    bool lock_within() noexcept { return lw_mutex_lock_within(&of_) == LW_OK; }
    void unlock() noexcept { lw_mutex_unlock(&of_); }
};

} // namespace leeward

#endif
