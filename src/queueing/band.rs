//! Markov chains whose states jump to near ones only.

/// Probabilities of jumps to the states from `first` on. No row starts, or ends, before the row of a lower state.
pub(crate) struct BandRow {
    pub(crate) first: usize,
    pub(crate) jumps: Vec<f64>,
}

impl BandRow {
    fn reaches(&self, state: usize) -> bool {
        self.first + self.jumps.len() > state
    }
}

/// The stationary probabilities.
///
/// States are taken out from the top, each replaced by where it leads below itself: no subtraction, so no digits are lost (W. K. Grassmann, M. I. Taksar and
/// D. P. Heyman, Operations Research 33 (1985) 1107).
pub(crate) fn stationary(mut rows: Vec<BandRow>) -> Vec<f64> {
    let base = eliminate(&mut rows);
    let mut found = probabilities(&rows, base);
    let sum: f64 = found.iter().sum();
    found.iter_mut().for_each(|probability| *probability /= sum);
    found
}

/// Returns the lowest state that can be reached.
fn eliminate(rows: &mut [BandRow]) -> usize {
    for state in (1..rows.len()).rev() {
        let (below, from) = rows.split_at_mut(state);
        let row = &from[0];
        let down = &row.jumps[..(state - row.first.min(state)).min(row.jumps.len())];
        let leaving: f64 = down.iter().sum();
        if leaving <= 0.0 {
            return state;
        }
        for source in below.iter_mut().rev() {
            if !source.reaches(state) {
                break;
            }
            let at = state - source.first.min(state);
            let Some(jump) = source.jumps.get_mut(at) else { continue };
            *jump /= leaving;
            let jump = *jump;
            // The band moves up with the state, so what leads down from `state` lies within the reach of `source`.
            let offset = row.first.saturating_sub(source.first);
            let skipped = source.first.saturating_sub(row.first);
            for (to, probability) in source.jumps[offset..].iter_mut().zip(down.iter().skip(skipped)) {
                *to += jump * probability;
            }
        }
    }
    0
}

/// Up to a factor, from the states that are left.
fn probabilities(rows: &[BandRow], base: usize) -> Vec<f64> {
    const LARGE: f64 = 1e100;
    let mut found = vec![0.0; rows.len()];
    found[base] = 1.0;
    for state in base + 1..found.len() {
        let mut probability = 0.0;
        for (row, before) in rows[base..state].iter().zip(&found[base..state]).rev() {
            if !row.reaches(state) {
                break;
            }
            if row.first <= state {
                probability += before * row.jumps[state - row.first];
            }
        }
        found[state] = probability;
        if probability > LARGE {
            found[base..=state].iter_mut().for_each(|value| *value /= LARGE);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A walk that goes up with 0.2 and down with 0.8: probabilities fall by a factor of 4 (detailed balance).
    #[test]
    fn a_walk_has_geometric_probabilities() {
        let row = |state: usize| match state {
            0 => BandRow { first: 0, jumps: vec![0.8, 0.2] },
            9 => BandRow { first: 8, jumps: vec![0.8, 0.2] },
            _ => BandRow { first: state - 1, jumps: vec![0.8, 0.0, 0.2] },
        };
        let found = stationary((0..10).map(row).collect());
        for pair in found.windows(2) {
            assert!((pair[0] / pair[1] / 4.0 - 1.0).abs() < 1e-12, "{found:?}");
        }
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
