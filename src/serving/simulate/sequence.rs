//! Requests inside a replica: how far each is, and the places that they take.

use super::prefix::{Held, Segment};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asked<'a> {
    /// In the order of arrivals, from 0.
    pub(super) id: u64,
    /// When it was sent, in seconds.
    pub(super) arrival: f64,
    pub(super) prompt: u64,
    pub(super) output: u64,
    /// Prompt tokens that are cached whatever the prefix cache holds.
    pub(super) cached: u64,
    pub(super) class: u32,
    /// The lower, the earlier it is served where priorities count.
    pub(super) priority: i64,
    pub(super) prefix: Prefix<'a>,
}

/// What a prompt begins with, as far as others may begin with it too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Prefix<'a> {
    /// Nothing that is known.
    Own,
    /// The same tokens as in all prompts that name this hash.
    Shared { hash: u64, tokens: u64 },
    /// Blocks of so many tokens; equal numbers stand for equal prompts up to there.
    Blocks { hashes: &'a [u64], block_tokens: u64 },
}

impl Prefix<'_> {
    /// The segments of a prompt of so many tokens.
    fn segments(&self, prompt: u64, into: &mut Vec<Segment>) {
        into.clear();
        match *self {
            Self::Own => {}
            Self::Shared { hash, tokens } => into.push(Segment { hash, tokens: tokens.min(prompt) }),
            Self::Blocks { hashes, block_tokens } => {
                let mut left = prompt;
                for &hash in hashes {
                    let tokens = left.min(block_tokens);
                    if tokens == 0 {
                        break;
                    }
                    into.push(Segment { hash, tokens });
                    left -= tokens;
                }
            }
        }
    }
}

/// What a request had in the cache is looked for in pieces of so many tokens.
const OWN_PIECE: u64 = 64;

/// Marks hashes of what only one request has.
const OWN: u64 = 1 << 63;

/// Nobody, in lists of slots.
pub(super) const NOBODY: u32 = u32::MAX;

/// A request at a replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence<'a> {
    pub(super) asked: Asked<'a>,
    /// Tokens emitted; those of the current run of decode steps not counted.
    pub(super) emitted: u64,
    /// Tokens of [`due_tokens`](Self::due_tokens) that are in the cache.
    pub(super) computed: u64,
    /// The step, counted by the replica, from which on it may be admitted.
    pub(super) eligible: u64,
    /// Decode steps of the replica when it began to decode, and when its answer ends; the latter is 0 while it does not decode.
    pub(super) joined: u64,
    pub(super) finish: u64,
    /// Decode steps at which the sums over its context leave their line.
    pub(super) bend: u64,
    /// Context at its last bend, or when it began to decode, and decode steps then.
    pub(super) bent_context: u64,
    pub(super) bent_at: u64,
    /// Times in seconds: start of the step that first computed something of it, end of the step of the first token, last token before the current
    /// run of decode steps.
    pub(super) admitted: f64,
    pub(super) first_token: f64,
    pub(super) last_token: f64,
    pub(super) preemptions: u32,
    /// Prompt tokens that were found in the cache when it first had a place.
    pub(super) found: u64,
    /// Tokens that it had in the cache when it lost its place: they may be there still.
    pub(super) own_until: u64,
    /// What it holds in the prefix cache.
    pub(super) held: Held,
    /// Blocks are taken for so many tokens.
    pub(super) held_tokens: u64,
    /// Its cache exists elsewhere: it decodes as soon as it has a place.
    pub(super) resumes: bool,
    /// Neighbours in the order of admission.
    pub(super) before: u32,
    pub(super) after: u32,
}

impl<'a> Sequence<'a> {
    pub(super) fn new(asked: Asked<'a>) -> Self {
        Self {
            asked,
            emitted: 0,
            computed: 0,
            eligible: 0,
            joined: 0,
            finish: 0,
            bend: 0,
            bent_context: 0,
            bent_at: 0,
            admitted: -1.0,
            first_token: -1.0,
            last_token: -1.0,
            preemptions: 0,
            found: 0,
            own_until: 0,
            held: Held::default(),
            held_tokens: 0,
            resumes: false,
            before: NOBODY,
            after: NOBODY,
        }
    }

    /// What must be in the cache before the next token: the prompt, and after a preemption what was emitted before. One that resumes has not yet
    /// cached its last token.
    pub(super) const fn due_tokens(&self) -> u64 {
        self.asked.prompt + self.emitted - if self.resumes { 1 } else { 0 }
    }

    /// Tokens in the cache after so many decode steps of the replica, once it decodes: its last token is written by the next step.
    pub(super) const fn context(&self, decode_steps: u64) -> u64 {
        self.asked.prompt + self.emitted - 1 + (decode_steps - self.joined)
    }

    /// What of its tokens may be in the prefix cache: what its prompt shares with others, and what it had there before.
    pub(super) fn segments(&self, into: &mut Vec<Segment>) {
        self.asked.prefix.segments(self.asked.prompt, into);
        let shared: u64 = into.iter().map(|segment| segment.tokens).sum();
        let pieces = self.own_until.saturating_sub(shared) / OWN_PIECE;
        let hash = |piece: u64| OWN | self.asked.id << 20 | piece;
        into.extend((0..pieces).map(|piece| Segment { hash: hash(piece), tokens: OWN_PIECE }));
    }

    /// Whether there is anything to look for in the prefix cache.
    pub(super) fn has_segments(&self) -> bool {
        self.own_until > 0 || self.asked.prefix != Prefix::Own
    }

    /// Tokens that need not be computed whatever the prefix cache holds.
    pub(super) fn cached_for_sure(&self) -> u64 {
        self.asked.cached.min(self.due_tokens().saturating_sub(1))
    }

    pub(super) const fn decodes(&self) -> bool {
        self.finish > 0
    }
}

/// Slots for requests, used again and again; and the running ones in the order of their admission.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequences<'a> {
    slots: Vec<Sequence<'a>>,
    free: Vec<u32>,
    last_admitted: Option<u32>,
    running: u64,
}

impl<'a> Sequences<'a> {
    pub(super) fn insert(&mut self, sequence: Sequence<'a>) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = sequence;
                slot
            }
            None => {
                self.slots.push(sequence);
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.free.push(slot);
        self.slots[slot as usize].finish = 0;
    }

    #[inline]
    pub(super) fn at(&self, slot: u32) -> &Sequence<'a> {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Sequence<'a> {
        &mut self.slots[slot as usize]
    }

    /// Sequences that have a place.
    pub(super) const fn running(&self) -> u64 {
        self.running
    }

    /// The running sequence that was admitted last.
    pub(super) const fn last_admitted(&self) -> Option<u32> {
        self.last_admitted
    }

    /// Running sequences, the last admitted first.
    pub(super) fn latest_first(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.last_admitted, |slot| {
            let before = self.at(*slot).before;
            (before != NOBODY).then_some(before)
        })
    }

    /// Gives a sequence a place, as the last.
    pub(super) fn start(&mut self, slot: u32) {
        let before = self.last_admitted.unwrap_or(NOBODY);
        let sequence = self.at_mut(slot);
        (sequence.before, sequence.after) = (before, NOBODY);
        if before != NOBODY {
            self.at_mut(before).after = slot;
        }
        self.last_admitted = Some(slot);
        self.running += 1;
    }

    /// Takes the place of a running sequence away.
    pub(super) fn stop(&mut self, slot: u32) {
        let (before, after) = (self.at(slot).before, self.at(slot).after);
        if before != NOBODY {
            self.at_mut(before).after = after;
        }
        match after {
            NOBODY => self.last_admitted = (before != NOBODY).then_some(before),
            after => self.at_mut(after).before = before,
        }
        self.running -= 1;
    }
}
