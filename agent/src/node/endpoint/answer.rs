//! Answers: a text, or a file that is sent piece by piece.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::io::{AsyncRead, ReadBuf};

pub(crate) type Answer = Response<Content>;

/// How much of a file is held in memory, in bytes.
const PIECE: usize = 64 << 10;

pub(crate) enum Content {
    /// The rest of a text.
    Text(Option<Bytes>),
    /// The rest of a file.
    File {
        file: tokio::fs::File,
        /// How many bytes are left. If the file has become shorter, the connection is closed, so that clients do not take a
        /// part for the whole.
        left: u64,
        piece: Box<[u8]>,
    },
}

pub(crate) fn text(status: StatusCode, media: &'static str, text: impl Into<Bytes>) -> Answer {
    answer(status, media, Content::Text(Some(text.into())))
}

/// A line for people, also in an error.
pub(crate) fn line(status: StatusCode, line: &str) -> Answer {
    text(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

/// A file of the length that it has now.
pub(crate) fn file(file: std::fs::File, media: &'static str) -> io::Result<Answer> {
    let left = file.metadata()?.len();
    let piece = vec![0; PIECE].into_boxed_slice();
    Ok(answer(StatusCode::OK, media, Content::File { file: file.into(), left, piece }))
}

fn answer(status: StatusCode, media: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::File { left: 0, .. } => Poll::Ready(None),
            Self::File { file, left, piece } => {
                let most = usize::try_from(*left).map_or(piece.len(), |left| left.min(piece.len()));
                let mut read = ReadBuf::new(&mut piece[..most]);
                ready!(Pin::new(file).poll_read(context, &mut read))?;
                let read = Bytes::copy_from_slice(read.filled());
                if read.is_empty() {
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                *left -= read.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(read))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Text(None) | Self::File { left: 0, .. })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Text(text) => text.as_ref().map_or(0, |text| text.len() as u64),
            Self::File { left, .. } => *left,
        })
    }
}

/// An answer is made without waiting. A failure is an answer, too.
pub(crate) type Made = Result<Answer, Infallible>;
