//! The recipes of `packaging/recipes`, each checked by its own program; nginx and HAProxy also run,
//! in front of replicas that reject.

use crate::architecture::root;
use crate::server::leeward;
use leeward_testkit::net::free_address;
use leeward_testkit::require::Requirement;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn recipe(name: &str) -> PathBuf {
    root().join("packaging/recipes").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(recipe(name)).unwrap()
}

/// A program of a Debian package, which may be outside of a user's PATH; `None` if it is missing.
fn program(name: &str) -> Option<PathBuf> {
    let found = ["/usr/sbin", "/usr/bin", "/usr/local/sbin"].map(|folder| Path::new(folder).join(name));
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        Requirement::Recipes.missing(format!("no {name} (scripts/setup recipes)"));
    }
    found
}

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A process that is killed at the end of its test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A replica that gives every request the same response, and counts the requests.
struct Replica {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Replica {
    fn start(answer: &'static str) -> Replica {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
                let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
                while !heard.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(0) | Err(_) => break,
                        Ok(read) => heard.extend_from_slice(&piece[..read]),
                    }
                }
                if !heard.is_empty() {
                    count.fetch_add(1, Ordering::SeqCst);
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        });
        Replica { address, requests: asked }
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

const REJECTION: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nretry-after-ms: 40\r\nleeward-reason: delay\r\n\
                       content-length: 0\r\nconnection: close\r\n\r\n";
const SUCCESS: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

/// Responses of a gate with `reports_load`: of one with low load, and of one that rejects.
const LOW_LOAD: &str = "HTTP/1.1 200 OK\r\nendpoint-load-metrics: TEXT rps_fractional=100.0,application_utilization=0.300,\
                       named_metrics.leeward_delay=0.200\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
const HIGH_LOAD: &str = "HTTP/1.1 503 Service Unavailable\r\nx-envoy-overloaded: true\r\nendpoint-load-metrics: TEXT \
                        rps_fractional=100.0,application_utilization=1.200,named_metrics.leeward_delay=0.800\r\ncontent-length: 0\r\n\
                        connection: close\r\n\r\n";

/// Head and body of a response, once a server listens.
fn request(address: SocketAddr, method: &str) -> String {
    for _ in 0..1_000 {
        let Ok(mut stream) = TcpStream::connect(address) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let body = if method == "POST" { "content-length: 2\r\n\r\nhi" } else { "\r\n" };
        let head = format!("{method} / HTTP/1.1\r\nhost: service\r\nconnection: close\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut heard = String::new();
        let _ = stream.read_to_string(&mut heard);
        return heard;
    }
    panic!("nobody listens at {address}");
}

/// Writes a recipe into its own folder, with other addresses.
fn write_config(folder: &Path, name: &str, addresses: &[(&str, String)]) -> PathBuf {
    let mut text = text(name);
    for (old, new) in addresses {
        assert!(text.contains(old), "{name} has no {old}");
        text = text.replace(old, new);
    }
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// nginx would look for a relative path in its own folder.
#[test]
fn nginx_checks_its_recipes_as_their_heads_say() {
    let Some(nginx) = program("nginx") else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["nginx.conf", "proxy-behind-nginx.conf"] {
        let text = text(name);
        let (_, check) = text.lines().find_map(|line| line.split_once("nginx -t ")).unwrap();
        let command = format!("{} -p {} -e stderr -t {check}", nginx.display(), folder.path().display());
        let output = Command::new("sh").args(["-c", &command]).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{command}: {}", output_text(&output));
    }
}

#[test]
fn nginx_forwards_rejections_and_retries_none() {
    let Some(nginx) = program("nginx") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (entry, replicas) = (free_address(), [Replica::start(REJECTION), Replica::start(REJECTION)]);
    let addresses = [
        ("127.0.0.1:8080", entry.to_string()),
        ("127.0.0.1:8081", replicas[0].address.to_string()),
        ("127.0.0.1:8082", replicas[1].address.to_string()),
    ];
    let path = write_config(folder.path(), "nginx.conf", &addresses);
    let command = |more: &[&str]| {
        let mut command = Command::new(&nginx);
        command.arg("-p").arg(folder.path()).arg("-e").arg("stderr").arg("-c").arg(&path).args(more);
        command
    };
    let output = command(&["-t"]).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    let foreground = ["-g", "daemon off; master_process off;"];
    let _nginx = KillOnDrop(command(&foreground).stderr(Stdio::null()).spawn().unwrap());
    for method in ["GET", "POST"] {
        let heard = request(entry, method);
        assert!(heard.starts_with("HTTP/1.1 503 ") && heard.contains("retry-after-ms: 40"), "{heard}");
    }
    assert_eq!(replicas[0].requests() + replicas[1].requests(), 2, "a refusal is not sent to the next replica");
}

#[test]
fn haproxy_uses_ready_replicas_and_retries_no_rejection() {
    let Some(haproxy) = program("haproxy") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (entry, replicas) = (free_address(), [Replica::start(REJECTION), Replica::start(SUCCESS)]);
    // The admin port of the second replica reports that it stops.
    let admins = [Replica::start(SUCCESS), Replica::start(REJECTION)];
    let server = |index: usize| {
        let (replica, admin) = (&replicas[index], &admins[index]);
        format!("{} port {}", replica.address, admin.address.port())
    };
    let addresses = [
        ("127.0.0.1:8080", entry.to_string()),
        ("127.0.0.1:8081 port 9464", server(0)),
        ("127.0.0.1:8082 port 9465", server(1)),
    ];
    let path = write_config(folder.path(), "haproxy.cfg", &addresses);
    let output = Command::new(&haproxy).arg("-c").arg("-f").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    let running =
        Command::new(&haproxy).args(["-db", "-f"]).arg(&path).stderr(Stdio::null()).stdout(Stdio::null()).spawn();
    let _haproxy = KillOnDrop(running.unwrap());
    // Wait until both replicas have been checked.
    for _ in 0..2_000 {
        if admins[1].requests() >= 2 && admins[0].requests() >= 1 {
            break;
        }
        let _ = TcpStream::connect(entry);
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(200));
    let before = replicas[1].requests();
    for method in ["GET", "POST", "GET"] {
        let heard = request(entry, method);
        assert!(heard.starts_with("HTTP/1.1 503 ") && heard.contains("retry-after-ms: 40"), "{heard}");
    }
    assert_eq!((replicas[0].requests(), replicas[1].requests() - before), (3, 0));
}

#[test]
fn envoy_reads_its_recipe() {
    let envoy = root().join("target/recipes/envoy/_bin/envoy");
    if !envoy.exists() {
        return Requirement::Recipes.missing("no target/recipes/envoy (scripts/setup recipes)");
    }
    let output = Command::new(envoy).args(["--mode", "validate", "-c"]).arg(recipe("envoy.yaml")).output().unwrap();
    assert!(output.status.success() && output_text(&output).contains("OK"), "{}", output_text(&output));
}

#[test]
fn envoy_weighs_replicas_by_load_and_retries_no_rejection() {
    let envoy = root().join("target/recipes/envoy/_bin/envoy");
    if !envoy.exists() {
        return Requirement::Recipes.missing("no target/recipes/envoy (scripts/setup recipes)");
    }
    let folder = tempfile::tempdir().unwrap();
    let (entry, replicas) = (free_address(), [Replica::start(LOW_LOAD), Replica::start(HIGH_LOAD)]);
    let admins = [Replica::start(SUCCESS), Replica::start(SUCCESS)];
    let port = |of: &Replica| format!("port_value: {} ", of.address.port());
    let addresses = [
        ("port_value: 8080 ", format!("port_value: {} ", entry.port())),
        ("port_value: 8081 ", port(&replicas[0])),
        ("port_value: 8082 ", port(&replicas[1])),
        ("port_value: 9464 ", port(&admins[0])),
        ("port_value: 9465 ", port(&admins[1])),
    ];
    let path = write_config(folder.path(), "envoy.yaml", &addresses);
    let mut command = Command::new(envoy);
    command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c"]).arg(path);
    let _envoy = KillOnDrop(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    // Weights apply after a while in which all replicas are equal; then the shares of a hundred
    // requests are compared.
    let asked = || [replicas[0].requests(), replicas[1].requests()];
    let mut shares = [0, 0];
    for _ in 0..60 {
        let before = asked();
        for _ in 0..100 {
            request(entry, "GET");
        }
        let after = asked();
        shares = [after[0] - before[0], after[1] - before[1]];
        if shares[0] > 2 * shares[1] && shares[1] > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(shares[0] > 2 * shares[1], "{shares:?} of the last hundred");
    let before: u64 = asked().iter().sum();
    let refused = (0..20).filter(|_| request(entry, "GET").starts_with("HTTP/1.1 503 ")).count();
    assert!(refused > 0, "the replica that is at its limit refuses");
    assert_eq!(asked().iter().sum::<u64>() - before, 20, "a refusal is not sent to the other replica");
}

#[test]
fn kubernetes_schemas_know_each_field() {
    let packages = root().join("target/recipes");
    if !packages.join("kubernetes_validate").is_dir() {
        return Requirement::Recipes.missing("no target/recipes/kubernetes_validate (scripts/setup recipes)");
    }
    let validate = |path: &Path| {
        let mut command = Command::new("python3");
        command.arg(root().join("tests/recipes/kubernetes.py")).arg(path).env("PYTHONPATH", &packages);
        command.output().unwrap()
    };
    let output = validate(&recipe("kubernetes/leeward.yaml"));
    assert!(output.status.success(), "{}", output_text(&output));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Deployment\nService\nNetworkPolicy\nHorizontalPodAutoscaler\n"
    );
    // A canary: an unknown field.
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.yaml");
    std::fs::write(&wrong, text("kubernetes/leeward.yaml").replace("periodSeconds: 5", "periodsSeconds: 5")).unwrap();
    assert!(!validate(&wrong).status.success());
}

#[test]
fn the_deployment_uses_existing_flags() {
    let manifest = text("kubernetes/leeward.yaml");
    let flags: Vec<&str> = manifest.lines().filter_map(|line| line.trim().strip_prefix("- --")).collect();
    let flags: Vec<String> = flags.iter().map(|flag| format!("--{flag}")).collect();
    assert!(flags.len() >= 4, "{flags:?}");
    let mut arguments = vec!["serve", "--print-config"];
    arguments.extend(flags.iter().map(String::as_str));
    let output = leeward(&arguments, Path::new("."));
    assert!(output.status.success(), "{}", output_text(&output));
}

/// The rules of gRPC's service config (gRFC A6) for the fields of the recipe.
#[test]
fn the_grpc_service_config_is_valid() {
    let config: Value = serde_json::from_str(&text("grpc-service-config.json")).unwrap();
    let span = |value: &Value| value.as_str().unwrap().strip_suffix('s').unwrap().parse::<f64>().unwrap();
    let number = |value: &Value, most: f64| {
        let number = value.as_f64().unwrap();
        assert!(number > 0.0 && number <= most, "{number}");
    };
    let method = &config["methodConfig"][0];
    assert_eq!(method["name"], serde_json::json!([{}]), "all methods");
    let policy = &method["retryPolicy"];
    assert!((2..=5).contains(&policy["maxAttempts"].as_u64().unwrap()));
    assert!(span(&policy["initialBackoff"]) <= span(&policy["maxBackoff"]) && span(&method["timeout"]) > 0.0);
    number(&policy["backoffMultiplier"], 10.0);
    // Status of a gate's rejection; its pushback then states whether and when to retry.
    assert!(policy["retryableStatusCodes"].as_array().unwrap().contains(&"RESOURCE_EXHAUSTED".into()));
    number(&config["retryThrottling"]["maxTokens"], 1_000.0);
    number(&config["retryThrottling"]["tokenRatio"], 1.0);
}

/// Expressions of the dashboard's panels.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().clone();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().replace("$instance", ".*")).collect()
}

#[test]
fn grafana_panels_query_existing_metrics() {
    let table = std::fs::read_to_string(root().join("docs/admin.md")).unwrap();
    let expressions = expressions();
    assert!(expressions.len() > 10, "{expressions:?}");
    for expression in &expressions {
        // Shadow mode rejects nothing.
        let counts_rejections = expression.contains("decision=\"refused\"");
        assert!(!counts_rejections || expression.contains("mode=\"enforce\""), "{expression}");
        for name in expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
            if name.starts_with("leeward_") {
                let family = name.strip_suffix("_bucket").unwrap_or(name);
                assert!(table.contains(&format!("`{family}`")), "{name} is not in docs/admin.md: {expression}");
            }
        }
    }
}

#[test]
fn prometheus_accepts_the_grafana_expressions() {
    if Command::new("promtool").arg("--version").output().is_err() {
        return Requirement::Promtool.missing("promtool is not in the path");
    }
    let rule = |(place, expression): (usize, &String)| {
        format!("      - record: panel:{place}\n        expr: {}\n", Value::from(expression.as_str()))
    };
    let rules: String = expressions().iter().enumerate().map(rule).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("panels.yml");
    std::fs::write(&path, format!("groups:\n  - name: panels\n    rules:\n{rules}")).unwrap();
    let output = Command::new("promtool").args(["check", "rules"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
}
