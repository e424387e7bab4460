//! Renews the generated parts of a document: `cargo run -p image --example readme README.md`.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("error: name the document whose generated parts are to be renewed");
        return ExitCode::FAILURE;
    };
    let renewed = std::fs::read_to_string(&path).map_err(|error| error.to_string()).and_then(|document| {
        let renewed = image::reference::renew(&document).map_err(|part| format!("it has no block {part}"))?;
        agent::files::ensure_content(&path, renewed.as_bytes(), 0o644).map_err(|error| error.to_string())
    });
    match renewed {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: renewing {}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
