"""Which language texts are in, told by the words that its sentences cannot do without: for stemming, and to find sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from evenspan.corpus.terms import MARKS

_ENOUGH = 0.07  # of all words must be among those of a language
_AHEAD = 1.15  # times as many as of the next language
_WORD = re.compile(rf"(?:[^\W\d_]|[{MARKS}])+")

# The words that are most frequent in running text, for the languages that Snowball has a stemmer for and for some that
# would be taken for one of these.
_WORDS = {
    "arabic": "في من على إلى أن التي عن مع هذا الذي هذه كان بين كما لا ما أو هو هي قد",
    "armenian": "է և են որ մեջ հետ այս նրա համար մի նաև եւ էր ու",
    "basque": "eta da du bat zen ez ere baina dira izan hau zuen dute den",
    "bulgarian": "на и в се за от да е с по като са не му със през до",
    "catalan": "de la i a el que en els per les un amb una del és al va als més són",
    "croatian": "je i u se na da su za od s kao te koji koja bio iz što sa bi",
    "czech": "a v se na je že s z do o k pro i ve jako po od byl jsou která který",
    "danish": "og i af at er en til på det for med som den der de et var har ikke",
    "dutch": "de het van een en in is dat op te zijn met voor die was aan er als niet",
    "english": "the of and in to a is was that for as with on by it are from at his be",
    "esperanto": "la de kaj en estas al kiu ke por el kun sed ne oni estis pri",
    "estonian": "ja on ei et see oli ka kui mis oma või ning aga tema mida",
    "finnish": "ja on ei että se oli myös hän joka ovat kun tai mutta sen hänen jotka",
    "french": "de la le et les des en un une du que est dans pour qui au par sur il ne pas",
    "german": "der die und in das von den mit zu ist des im für dem ein eine auf nicht als sich",
    "greek": "και του της το η ο την των στο να με που τον από για στην οι είναι σε τα",
    "hindi": "के में की है और से का को पर एक यह हैं था ने कि भी लिए इस नहीं",
    "hungarian": "a az és hogy nem egy is volt meg ez de csak ki el mint vagy amely",
    "indonesian": "yang dan di dari dengan pada untuk ini dalam tidak itu adalah sebagai ke oleh juga",
    "irish": "an na agus ar is a i ag bhí le go de ó ina do tá",
    "italian": "di e il la che in un a per è una del della con non sono le si da i gli",
    "lithuanian": "ir yra į kad su buvo iš o kaip tai bet dėl apie jis nuo",
    "nepali": "र को मा छ का पनि हो यो ले थियो गर्न एक छन् गरेको लागि",
    "norwegian": "og i av på er en til for med som det et var den ble at har fra ikke",
    "persian": "در و به از که این را با است برای آن یک تا بر شد می بود او",
    "polish": "w i na z się do nie że jest o jak to od po za przez oraz dla był",
    "portuguese": "de a o e que do da em um para os com uma no na não por as dos foi ao",
    "romanian": "de și în a la cu din pe o care un este nu mai au fost că se pentru al",
    "russian": "и в на не с что по из был как к он его для от это за до но",
    "serbian": "је и у се на да су за од са као који која био из што до",
    "slovak": "a v sa na je že s z do o k pre aj ako po od bol sú ktorý ktorá",
    "spanish": "de la que el en y a los se del las un por con una su para es al no",
    "swedish": "och i att av en som på är för med den till det ett var har de inte om",
    "tamil": "ஒரு மற்றும் இந்த என்று அவர் இது என இருந்து உள்ள என்ற அந்த",
    "turkish": "ve bir bu da de için ile olarak çok daha olan gibi ne en kadar sonra var o",
    "ukrainian": "і в на у з що до не за та є як від для був це його й про також",
    "urdu": "کے میں کی ہے اور سے کا کو پر ایک یہ ہیں نے بھی اس تھا",
    "vietnamese": "và của là các có được trong cho một với những không này người đã để",
}
CODES = {
    "arabic": "ar", "armenian": "hy", "basque": "eu", "bulgarian": "bg", "catalan": "ca", "croatian": "hr", "czech": "cs",
    "danish": "da", "dutch": "nl", "english": "en", "esperanto": "eo", "estonian": "et", "finnish": "fi", "french": "fr",
    "german": "de", "greek": "el", "hindi": "hi", "hungarian": "hu", "indonesian": "id", "irish": "ga", "italian": "it",
    "lithuanian": "lt", "nepali": "ne", "norwegian": "nb", "persian": "fa", "polish": "pl", "portuguese": "pt",
    "romanian": "ro", "russian": "ru", "serbian": "sr", "slovak": "sk", "spanish": "es", "swedish": "sv", "tamil": "ta",
    "turkish": "tr", "ukrainian": "uk", "urdu": "ur", "vietnamese": "vi",
}  # fmt: skip
_LISTED = {name: frozenset(words.split()) for name, words in _WORDS.items()}


def detect_language(texts: Iterable[str]) -> str | None:
    """The English name of the language that texts are in, if they are clearly in one of those that are known."""
    counts = Counter(word for text in texts for word in _WORD.findall(text[:2000].lower()))
    total = sum(counts.values())
    shares = {name: sum(counts[word] for word in words) for name, words in _LISTED.items()}
    best, second = sorted(shares, key=lambda name: -shares[name])[:2]
    return best if total and shares[best] >= max(_ENOUGH * total, _AHEAD * shares[second]) else None
