//! Hears from the engine that something of ours ended or went, so that nobody has to wait until the next observation.
//!
//! An event says only that it is worth while to observe: it is never read, because a container's labels, of any length,
//! are in it. What one that is missed was about is observed all the same, by the next regular pass.

use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::ComposeRuntime;
use super::engine::EventStream;

/// What of a container is heard: it ended, somebody paused it, or it is gone.
const EVENTS: [&str; 3] = ["die", "pause", "destroy"];

/// Between two tries to listen: doubled each time, from the first to the last.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Listens for as long as it lives.
#[derive(Debug)]
pub struct Watch {
    stream: Arc<EventStream>,
    /// The thread ends when this is gone.
    _end: Sender<()>,
}

impl ComposeRuntime {
    /// Calls `changed` from a thread of its own whenever something of ours ended or went, and when it begins to listen
    /// again after it couldn't. `None` where the engine isn't behind a socket of this machine: there only looking helps.
    pub fn watch(&self, changed: impl Fn() + Send + 'static) -> Option<Watch> {
        let labels = self.owner.common().map(|(name, value)| format!("{name}={value}"));
        Some(Watch::over(self.engine.events(&labels, &EVENTS)?, changed))
    }
}

impl Watch {
    fn over(stream: EventStream, changed: impl Fn() + Send + 'static) -> Self {
        let ((end, ended), stream) = (channel(), Arc::new(stream));
        let listens = Arc::clone(&stream);
        thread::spawn(move || listen(&listens, &ended, &changed));
        Self { stream, _end: end }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stream.interrupt();
    }
}

fn listen(stream: &EventStream, ended: &Receiver<()>, changed: &impl Fn()) {
    let [first, longest] = BACK_OFF;
    let mut back_off = first;
    let mut is_first = true;
    loop {
        match stream.open() {
            Ok(events) => {
                back_off = first;
                if !is_first {
                    changed();
                }
                is_first = false;
                hear(events, changed);
            }
            Err(reason) => tracing::debug!(reason, "events of the engine are not heard"),
        }
        if ended.recv_timeout(back_off) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        back_off = (back_off * 2).min(longest);
    }
}

/// Calls `changed` for whatever comes, unread, until the stream ends.
fn hear(mut events: impl Read, changed: &impl Fn()) {
    let mut unread = [0; 8 << 10];
    while let Ok(1..) = events.read(&mut unread) {
        changed();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use repo_testkit::faults::listening::{Listening, kept};

    use super::*;

    /// Waits until this was heard so often.
    fn heard(count: &AtomicUsize, often: usize) -> Duration {
        let began = Instant::now();
        while count.load(Ordering::SeqCst) < often {
            assert!(began.elapsed() < Duration::from_secs(20), "{} of {often}", count.load(Ordering::SeqCst));
            thread::sleep(Duration::from_millis(5));
        }
        began.elapsed()
    }

    #[test]
    fn each_event_is_heard_at_once_whatever_is_in_it_and_a_stream_that_ends_is_opened_again() {
        let (go, gone) = channel::<&[u8]>();
        let gone = std::sync::Mutex::new(gone);
        let engine = Listening::start(move |head, stream| {
            if head.contains("_ping") {
                return stream.write_all(kept("200 OK", &["Api-Version: 1.41"], "OK").as_bytes()).is_ok();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
            while let Ok(event @ [_, ..]) = gone.lock().unwrap().recv() {
                stream.write_all(format!("{:x}\r\n", event.len()).as_bytes()).unwrap();
                stream.write_all(event).and_then(|()| stream.write_all(b"\r\n")).unwrap();
            }
            false
        });
        let stream = EventStream::of(&engine.path(), &["a=b".to_owned()], &EVENTS);
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let watch = Watch::over(stream, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(count.load(Ordering::SeqCst), 0, "nothing was heard yet");
        go.send(b"{}\n").unwrap();
        heard(&count, 1);
        // No JSON, and no end of it.
        let huge: &'static [u8] = Box::leak(vec![b'"'; 4 << 20].into_boxed_slice());
        go.send(huge).unwrap();
        heard(&count, 2);
        go.send(b"{}\n").unwrap();
        go.send(b"").unwrap();
        let before = {
            thread::sleep(Duration::from_millis(500));
            count.load(Ordering::SeqCst)
        };
        heard(&count, before + 1);
        assert!(engine.asked().iter().filter(|line| line.contains("/v1.41/events?filters=")).count() == 2);
        drop(watch);
        thread::sleep(Duration::from_millis(1500));
        let asked = engine.asked().len();
        thread::sleep(Duration::from_millis(1500));
        assert_eq!(engine.asked().len(), asked, "nobody listens any more");
    }
}
