//! Notices of an engine that looks, decides and acts until it reaches its goal. The caller words them for users.

#[derive(Clone, Copy, Debug)]
pub enum Notice<'a, Action, Wait> {
    /// The engine waits for the end of another command, in these words.
    TakingOver(&'a str),
    /// A template is imported, which may take minutes.
    Staging,
    Begun(&'a Action),
    Waits(&'a Wait),
}
