//! What a new token mends. Knows nothing of how a worker is given one.

use contract::codes::{ENVIRONMENT_ABSENT, JOIN_TOKEN_REFUSED, PROPERTY_MISSING};
use contract::statement::asks_for_token;

use super::worker_record::WorkerRecord;

/// Whether a worker with an error of this code joins again once it is given a new token. One that had joined and has lost what
/// it kept on its system disk says what its form of then lacks, or that the token in it has ended: with a form that is filled in anew
/// it is the same node again.
pub(super) fn token_mends(machine: &WorkerRecord, code: &str) -> bool {
    let of_its_form = [PROPERTY_MISSING, JOIN_TOKEN_REFUSED, ENVIRONMENT_ABSENT];
    asks_for_token(code) || machine.has_joined() && of_its_form.iter().any(|one| one.code == code)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::tests::fake::pool;
    use super::*;

    #[test]
    fn what_its_form_lacks_a_new_token_mends_only_for_one_that_had_joined() {
        let new = WorkerRecord::new(&pool(1), Uuid::from_u128(1), None, 0);
        let joined = WorkerRecord { joined_seconds: Some(9), ..new.clone() };
        for code in ["property.missing", "join.token-refused", "environment.absent"] {
            assert!(token_mends(&joined, code) && !token_mends(&new, code), "{code}");
        }
        assert!(token_mends(&new, "join.certificate-expired") && !token_mends(&joined, "join.wrong-ca"));
    }
}
