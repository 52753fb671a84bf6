//! A connection whose other end has to go on taking what it is sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Duration, Instant, Sleep, sleep};

use crate::limits::Limits;
use crate::metrics::Traffic;

/// A stream whose other end must go on taking bytes; what passes is counted.
pub(crate) struct Paced<T> {
    stream: T,
    traffic: Traffic,
    /// What was read before, and is read again.
    pub(crate) ahead: Vec<u8>,
    /// Bytes in a second of waiting that the other end has to take at least.
    least: u64,
    /// How long it was waited for the other end in the present round, and how many bytes it took in it.
    waited: Duration,
    taken: u64,
    /// Since when nothing is taken, and when that is looked at.
    stalled: Option<(Instant, Pin<Box<Sleep>>)>,
    /// Whether nothing is taken, for whoever has given the stream away.
    pub(crate) stuck: Arc<AtomicBool>,
}

impl<T> Paced<T> {
    pub(crate) fn new(stream: T, traffic: Traffic, least: u64) -> Self {
        let (waited, taken, ahead) = (Duration::ZERO, 0, Vec::new());
        Self { stream, traffic, ahead, least, waited, taken, stalled: None, stuck: Arc::default() }
    }

    /// What became of an attempt to write; an error if nothing came through for too long, or too little.
    fn pace<R>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.stuck.store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            if let Some((since, _)) = self.stalled.take() {
                self.waited += since.elapsed();
            }
            return if self.judge_round() { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { written };
        }
        loop {
            let rest = Limits::STALL.min(Limits::ROUND.saturating_sub(self.waited));
            let (since, look) = self.stalled.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(rest))));
            ready!(look.as_mut().poll(context));
            let stalled = since.elapsed();
            self.waited += stalled;
            if stalled >= Limits::STALL || self.judge_round() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.stalled = None;
        }
    }

    /// Ends a round that is over, and says whether too little was taken in it; only the time counts in which something waited.
    fn judge_round(&mut self) -> bool {
        if self.waited < Limits::ROUND {
            return false;
        }
        let least = self.least.saturating_mul(self.waited.as_secs());
        self.waited = Duration::ZERO;
        std::mem::take(&mut self.taken) < least
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Paced<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.remaining());
            let rest = self.ahead.split_off(count);
            buffer.put_slice(&std::mem::replace(&mut self.ahead, rest));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.traffic.received.inc_by((buffer.filled().len() - before) as u64);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Paced<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.traffic.sent.inc_by(count as u64);
            self.taken += count as u64;
        }
        self.pace(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.pace(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.pace(context, closed)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_for_too_long_is_given_up_and_who_is_slow_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let mut ours = Paced::new(ours, Traffic::default(), 0);
        let slow = async {
            let mut byte = [0];
            for _ in 0..50 {
                sleep(Limits::STALL / 2).await;
                theirs.read_exact(&mut byte).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[7; 50]), slow);
        written.unwrap();
        assert!(!ours.stuck.load(Ordering::Relaxed));
        let start = Instant::now();
        let error = ours.write_all(&[7; 50]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() >= Limits::STALL && start.elapsed() < Limits::STALL * 2);
        assert!(ours.stuck.load(Ordering::Relaxed));
        assert_eq!(ours.traffic.sent.get(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_too_little_is_given_up_however_regularly_it_takes_something() {
        for (least, every, ends) in [(10, 2, true), (5, 1, false)] {
            let (ours, mut theirs) = tokio::io::duplex(10);
            let mut ours = Paced::new(ours, Traffic::default(), least);
            let (start, mut bytes) = (Instant::now(), [0; 10]);
            let slow = async {
                while start.elapsed() < Limits::ROUND * 5 {
                    sleep(Duration::from_secs(every)).await;
                    theirs.read_exact(&mut bytes).await.unwrap();
                }
            };
            tokio::select! {
                written = async { loop { if let Err(error) = ours.write_all(&[7; 10]).await { break error } } } => {
                    assert!(ends, "{written} after {:?}", start.elapsed());
                    assert!(start.elapsed() >= Limits::ROUND && start.elapsed() < Limits::ROUND * 2);
                }
                () = slow => assert!(!ends),
            }
        }
    }

    #[tokio::test]
    async fn what_is_read_again_comes_first_and_is_no_traffic() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let mut ours = Paced::new(ours, Traffic::default(), 0);
        ours.ahead = b"again".to_vec();
        theirs.write_all(b"new").await.unwrap();
        drop(theirs);
        let (mut begin, mut rest) = ([0; 2], String::new());
        ours.read_exact(&mut begin).await.unwrap();
        ours.read_to_string(&mut rest).await.unwrap();
        assert_eq!((&begin, rest.as_str()), (b"ag", "ainnew"));
        assert_eq!(ours.traffic.received.get(), 3);
    }
}
