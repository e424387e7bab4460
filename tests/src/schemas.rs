//! The JSON Schema of a node's status document, which the crate `kaas-dev` cannot generate: it does not depend on the agent.

use std::fs;

use crate::places::workspace;

/// With `KAAS_SCHEMAS=write`, as `make reference` sets it, the test writes the file.
#[test]
fn endpoint_status_schema_is_current() {
    let path = workspace().join("docs/reference/schemas/endpoint-status.json");
    let text = format!("{:#}\n", agent::status::schema().as_value());
    if std::env::var_os("KAAS_SCHEMAS").is_some_and(|value| value == "write") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "{} is behind the code: `make reference` renews it", path.display());
}
