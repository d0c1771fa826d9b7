//! The command `stats`: the store's counters and contents, in memcached's lines.

use super::execute::Executor;
use super::replies::ERROR;
use crate::store::RequestContext;
use crate::store::stats::COUNTERS;
use std::fmt::Display;

/// Appends the lines of `stats`.
pub(super) fn stats(executor: &Executor, which: &[u8], context: &RequestContext, out: &mut Vec<u8>) {
    let mut line = |name: &dyn Display, value: &dyn Display| {
        out.extend_from_slice(format!("STAT {name} {value}\r\n").as_bytes());
    };
    let store = executor.store();
    let config = store.config();
    match which {
        b"" => {
            line(&"pid", &std::process::id());
            line(&"uptime", &context.now.saturating_sub(executor.started()));
            line(&"time", &context.now);
            line(&"version", &executor.version());
            line(&"pointer_size", &usize::BITS);
            if let Some([user, system]) = cpu_time() {
                line(&"rusage_user", &user);
                line(&"rusage_system", &system);
            }
            executor.write_extra_stats(&mut line);
            for (counter, name) in COUNTERS {
                line(name, &store.stats().get(*counter));
            }
            let usage = store.usage();
            let bytes: usize = usage.class_usage.iter().map(|class| class.used * class.chunk).sum();
            line(&"hash_buckets", &usage.buckets);
            line(&"hash_bytes", &(usage.buckets * 4));
            line(&"limit_maxbytes", &config.memory);
            line(&"total_malloced", &(usage.pages * crate::store::PAGE));
            line(&"bytes", &bytes);
            line(&"curr_items", &usage.items);
            line(&"threads", &config.threads);
        }
        b"settings" => {
            executor.write_extra_stats(&mut |name, value| {
                if name.to_string() == "max_connections" {
                    line(&"maxconns", value);
                }
            });
            line(&"maxbytes", &config.memory);
            line(&"growth_factor", &config.factor);
            line(&"chunk_size", &config.smallest_chunk);
            line(&"item_size_max", &crate::store::PAGE);
            line(&"num_threads", &config.threads);
            line(&"cas_enabled", &"yes");
            line(&"evictions", &"on");
            line(&"hashpower_init", &config.hash_power);
            line(&"binding_protocol", &"ascii");
        }
        b"items" => {
            let usage = store.usage();
            for (class, count) in usage.lru_lengths.iter().enumerate().filter(|(_, count)| **count > 0) {
                line(&format_args!("items:{}:number", class + 1), count);
                line(&format_args!("items:{}:evicted", class + 1), &usage.class_totals[class].1);
            }
        }
        b"slabs" => {
            let usage = store.usage();
            for (index, class) in usage.class_usage.iter().enumerate().filter(|(_, class)| class.pages > 0) {
                let number = index + 1;
                line(&format_args!("{number}:chunk_size"), &class.chunk);
                line(&format_args!("{number}:chunks_per_page"), &(crate::store::PAGE / class.chunk));
                line(&format_args!("{number}:total_pages"), &class.pages);
                line(&format_args!("{number}:total_chunks"), &(class.used + class.free));
                line(&format_args!("{number}:used_chunks"), &class.used);
                line(&format_args!("{number}:free_chunks"), &class.free);
                line(&format_args!("{number}:cmd_set"), &usage.class_totals[index].0);
                // Monitors subtract these from the sets; the store counts them for all classes
                // together.
                line(&format_args!("{number}:cas_hits"), &0);
                line(&format_args!("{number}:cas_badval"), &0);
            }
            line(&"active_slabs", &usage.class_usage.iter().filter(|class| class.pages > 0).count());
            line(&"total_malloced", &(usage.pages * crate::store::PAGE));
        }
        // The reply of a memcached that does not count sizes.
        b"sizes" => line(&"sizes_status", &"disabled"),
        // Sent by `leeward top`; memcached has no such statistics.
        b"leeward" => line(&"leeward", &executor.statistics()),
        b"reset" => {
            store.stats().reset();
            out.extend_from_slice(b"RESET\r\n");
            return;
        }
        _ => {
            out.extend_from_slice(ERROR);
            return;
        }
    }
    out.extend_from_slice(b"END\r\n");
}

/// Returns the process's CPU time in user mode and in the kernel, in memcached's form: seconds and
/// microseconds.
fn cpu_time() -> Option<[String; 2]> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is in parentheses and may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut seconds = || {
        let hundredths: u64 = fields.next()?.parse().ok()?;
        Some(format!("{}.{:02}0000", hundredths / 100, hundredths % 100))
    };
    Some([seconds()?, seconds()?])
}
