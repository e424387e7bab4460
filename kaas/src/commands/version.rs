//! `kaas version`: the versions of this program and of the objects that it writes.

use clap::Args;
use controller::objects::{GROUP, VERSION};
use serde_json::{Value, json};

use crate::output::Output;

/// The options of `kaas version`.
#[derive(Args)]
pub struct Version {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    output: Output,
}

pub fn run(arguments: &Version) -> anyhow::Result<()> {
    let versions = versions();
    arguments.output.result(&versions, || text(&versions))
}

fn versions() -> Value {
    json!({"version": env!("CARGO_PKG_VERSION"), "objects": format!("{GROUP}/{VERSION}")})
}

fn text(versions: &Value) -> String {
    let of = |key: &str| versions[key].as_str().unwrap_or_default().to_owned();
    format!("kaas {}\nobjects {}", of("version"), of("objects"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_names_program_and_objects() {
        let expected = format!("kaas {}\nobjects kaas.local/v1alpha1", env!("CARGO_PKG_VERSION"));
        assert_eq!(text(&versions()), expected);
    }
}
