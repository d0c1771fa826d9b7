//! Development: laws over cases, with a cache of the best static numbers.
use leeward_concurrency::registry;
use leeward_proxy_sim::benchmark::{BestStatic, best_static, play};
use leeward_proxy_sim::case::Case;
use leeward_proxy_sim::proxy::RunResult;
use std::collections::BTreeMap;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let first: u64 = args[1].parse().unwrap();
    let count: u64 = args[2].parse().unwrap();
    let laws = &args[3].split(',').map(String::from).collect::<Vec<_>>();
    let verbose = args.get(4).map_or(10, |text| text.parse::<usize>().unwrap());
    let path = std::env::var("CACHE").unwrap_or("/tmp/pl-best.txt".into());
    let mut cache: BTreeMap<u64, BestStatic> = BTreeMap::new();
    for line in std::fs::read_to_string(&path).unwrap_or_default().lines() {
        let f: Vec<f64> = line.split(' ').map(|t| t.parse().unwrap()).collect();
        let result = RunResult {
            offered: f[2] as u64,
            good: f[3] as u64,
            answered: f[4] as u64,
            p50_ns: f[5] as u64,
            mean_limit: f[6],
        };
        cache.insert(f[0] as u64, BestStatic { number: f[1] as u32, result });
    }
    let mut out = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
    let mut rows: BTreeMap<String, Vec<(f64, f64, f64, u64)>> = BTreeMap::new();
    let mut bests = BTreeMap::new();
    for seed in first..first + count {
        let case = Case::random(seed);
        let best = *cache.entry(seed).or_insert_with(|| {
            let b = best_static(&case, seed);
            use std::io::Write;
            writeln!(
                out,
                "{seed} {} {} {} {} {} {}",
                b.number, b.result.offered, b.result.good, b.result.answered, b.result.p50_ns, b.result.mean_limit
            )
            .unwrap();
            b
        });
        let best = BestStatic {
            number: best.number,
            result: leeward_proxy_sim::proxy::run(&case, &mut leeward_concurrency::fixed::Static(best.number), seed),
        };
        bests.insert(seed, best);
        for law in laws {
            let r = play(&case, registry::find(law).unwrap(), seed);
            let share = r.good as f64 / best.result.good.max(1) as f64;
            rows.entry(law.clone()).or_default().push((
                share,
                r.p50_ns as f64 / best.result.p50_ns.max(1) as f64,
                r.mean_limit,
                seed,
            ));
        }
    }
    for law in laws {
        let mut v = rows[law].clone();
        v.sort_by(|a, b| a.0.total_cmp(&b.0));
        let n = v.len();
        let below = v.iter().filter(|r| r.0 < 0.9).count();
        let below93 = v.iter().filter(|r| r.0 < 0.93).count();
        let equal: Vec<_> = v.iter().filter(|r| r.0 >= 0.99).collect();
        let ok = equal.iter().filter(|r| r.1 <= 1.05).count();
        println!(
            "{law:10} median {:.3} p25 {:.3} p10 {:.3} p1 {:.3} worst {:.3} mean {:.4} below.9 {below} below.93 {below93} p50ok {ok}/{}",
            v[n / 2].0,
            v[n / 4].0,
            v[n / 10].0,
            v[n / 100].0,
            v[0].0,
            v.iter().map(|r| r.0).sum::<f64>() / n as f64,
            equal.len()
        );
        let mut kinds: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for r in &v {
            let c = Case::random(r.3);
            let kind = format!("{:?}", c.feature);
            kinds.entry(kind.split(['(', ' ']).next().unwrap().to_string()).or_default().push(r.0);
        }
        for (k, v) in kinds {
            println!(
                "    {k:10} n {} mean {:.3} below.93 {}",
                v.len(),
                v.iter().sum::<f64>() / v.len() as f64,
                v.iter().filter(|s| **s < 0.93).count()
            );
        }
        let slow: Vec<_> = v.iter().filter(|r| r.0 >= 0.99 && r.1 > 1.05).collect();
        for r in v.iter().take(verbose).chain(slow.into_iter().take(if std::env::var("SLOW").is_ok() { 99 } else { 0 }))
        {
            let b = bests[&r.3];
            println!(
                "  {:.3} p50 {:.2} limit {:.1} best {} share {:.2} | {} {}",
                r.0,
                r.1,
                r.2,
                b.number,
                b.result.good as f64 / b.result.offered as f64,
                r.3,
                Case::random(r.3)
            );
        }
    }
}
