//! A small client of QEMU's machine protocol (docs/interop/qmp-spec.rst): one command at a time over a VM's socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

pub struct Qmp {
    writer: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects and leaves the negotiation mode. Fails if another client is connected.
    pub fn connect(socket: &Path) -> anyhow::Result<Self> {
        let open = || -> anyhow::Result<Self> {
            let writer = UnixStream::connect(socket)?;
            writer.set_read_timeout(Some(Duration::from_secs(30)))?;
            let mut client = Self { reader: BufReader::new(writer.try_clone()?), writer };
            client.receive()?;
            client.execute("qmp_capabilities", json!({}))?;
            Ok(client)
        };
        open().with_context(|| format!("talking to the VM through {}", socket.display()))
    }

    /// Runs a command and returns its result, within half a minute. Skips events before the answer.
    pub fn execute(&mut self, command: &str, arguments: Value) -> anyhow::Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.writer, "{request}").with_context(|| format!("sending {command}"))?;
        loop {
            let mut answer = self.receive().with_context(|| format!("waiting for the answer to {command}"))?;
            if let Some(error) = answer.get("error") {
                bail!("{command}: {}", error["desc"].as_str().unwrap_or("refused"));
            }
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
        }
    }

    fn receive(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("the VM ended the connection");
        }
        Ok(serde_json::from_str(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn serve(answers: &'static [&'static str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            writeln!(stream, "{{\"QMP\": {{}}}}").unwrap();
            let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
            for answer in answers {
                requests.next().unwrap().unwrap();
                writeln!(stream, "{answer}").unwrap();
            }
        });
        (directory, path)
    }

    #[test]
    fn events_before_the_answer_are_skipped() {
        let answers = &["{\"return\": {}}", "{\"event\": \"POWERDOWN\"}\n{\"return\": {\"status\": \"running\"}}"];
        let (_directory, path) = serve(answers);
        let mut client = Qmp::connect(&path).unwrap();
        assert_eq!(client.execute("query-status", json!({})).unwrap()["status"], "running");
    }

    #[test]
    fn an_error_names_command_and_reason() {
        let (_directory, path) = serve(&["{\"return\": {}}", "{\"error\": {\"desc\": \"no such device\"}}"]);
        let mut client = Qmp::connect(&path).unwrap();
        let error = client.execute("eject", json!({})).unwrap_err().to_string();
        assert_eq!(error, "eject: no such device");
    }
}
