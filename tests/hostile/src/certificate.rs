//! A certificate for the port under attack, made by `openssl` for one run. Does not contain TLS.

use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

static FILES: OnceLock<Result<Files, String>> = OnceLock::new();

/// Files of an authority and of a server on this machine. [`remove`] deletes them.
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn ca(&self) -> PathBuf {
        self.0.join("ca.pem")
    }

    pub(crate) fn cert(&self) -> PathBuf {
        self.0.join("server.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.0.join("server.key")
    }
}

/// Returns the files of this run; the first call makes them.
pub(crate) fn files() -> anyhow::Result<&'static Files> {
    let made = FILES.get_or_init(|| make().map_err(|error| format!("{error:#}")));
    made.as_ref().map_err(|message| anyhow::anyhow!("a certificate by openssl: {message}"))
}

/// Deletes the files, if they were made.
pub(crate) fn remove() {
    if let Some(Ok(files)) = FILES.get() {
        let _ = std::fs::remove_dir_all(&files.0);
    }
}

fn make() -> anyhow::Result<Files> {
    let folder = std::env::temp_dir().join(format!("leeward-hostile-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let authority = ["req", "-x509", "-days", "2", "-subj", "/CN=an authority", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(&folder, &[&authority[..], &key, &["-addext", "basicConstraints=critical,CA:TRUE"]].concat())?;
    openssl(
        &folder,
        &[&["req", "-subj", "/CN=a server", "-keyout", "server.key", "-out", "server.csr"][..], &key].concat(),
    )?;
    std::fs::write(folder.join("server.ext"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")?;
    let issue =
        ["x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"];
    openssl(&folder, &[&issue[..], &["-extfile", "server.ext", "-out", "server.pem"]].concat())?;
    Ok(Files(folder))
}

fn openssl(folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("openssl");
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    let output = command.output().context("starting it")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
