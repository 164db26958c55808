"""The code books of the IQ formats of GGUF: constants of the file format, as published with ggml
(MIT licence, the ggml authors).

An IQ format stores, for four or eight weights together, the number of a row in a table. A row's
weights are from a few levels, so that a table is kept here as the numbers of the levels, two or
three bits each, packed by zlib and spelled in base 85. tests/io/test_gguf.py compares the weights
with the `gguf` package.
"""

from __future__ import annotations

import base64
import functools
import zlib
from dataclasses import dataclass

__all__ = ["grid"]


@dataclass(frozen=True)
class _Grid:
    """The levels, how many weights a row has, and the rows."""

    levels: tuple[int, ...]
    width: int
    text: str


@functools.cache
def grid(name: str) -> tuple[int, list[int]]:
    """The table of the format `name`: weights of a row, and all weights, row after row."""
    found = _GRIDS[name]
    bits = 3 if len(found.levels) > 4 else 2
    packed = zlib.decompress(base64.b85decode(found.text))
    whole = int.from_bytes(packed, "big")
    mask = (1 << bits) - 1
    count = len(packed) * 8 // bits
    numbers = [(whole >> (bits * at)) & mask for at in range(count - 1, -1, -1)]
    return found.width, [found.levels[number] for number in numbers]


_GRIDS = {
    "IQ2_XXS": _Grid(
        (8, 25, 43),
        8,
        "c-jTQ!D`|_7y#h^A7;YD)1M(q^fZyA=sv|HjADA4h%I{4#Vx!06q8_!?MX$U$FyvrkGbCm;K6~04lKkV;RqA>h5{"
        "lGkV6GSV9>%Ryn!)fxLFxA%G??7-XDGI4H0o#P(nxzr4&+0iUJxDIPbKR?(F_J=H_mD;wL<*)93`+X{}>D(S?q*("
        "9e3TX^UIm#hu~AIbU$(Ay+)$j~uMF(hB=!nN1G$0b(7?cpdLz7H6y16<n`ZlTpSq%*qV*Zr|I_{(<zelaZ_>ldb%"
        "{NEdMQN0U&(6HIOitc&$<9lYy_oD3$>w?RUV87?qE#1wBBVu=a^ghCco!HQ*J8s4PMt(i6u=}1N_dWsHpQp4G#l="
        "2kQI)z=nt9I?K{s=xmXko=(NWsKd(5#t_X7lHu|I+Us%&mWe+~)gynBy<~MIjF{oQ6<6RM~6z3PU&Ko5MzJnkg{P"
        "I##fjQJIxk+SVviT&)zUP{H!N94xmNyo47&rl0nc0v;p*2KT{r&gS(C432|nFncWT<dg4--m<s7hqr7be$e0l+^%"
        "C(",
    ),
    "IQ2_XS": _Grid(
        (8, 25, 43),
        8,
        "c-jTQQBUeT7y#h6O-s66wM$3Pt8N))@+;b<Gw4-Ez`%C}Mvcc`(UED8t7*h|yh7qJz_0wC2f%{^1zWHn;T>*)!3w"
        "63g8>1rumB2AFo8Z?!U<ql!U$5hfG*ra2wHR9>bWMm(PN$IA3fAPjdZOmo#;}>I?(63(2?$F@ZLMGy!FyEZ@lo-P"
        "dxTJuQ}%}pL4<+KIR!8@*YRL<`qwP$z#6Z0WWyOI~<&M&M9Y|bj%qi9CeotJKge@w4W_%>o#gZdF7N+TV<70Oih("
        "hLQ&OMScU4S^qkMh9L<aQ%^bFDn{Pk1;Z_q)S~4euG-OONG9*2MNKGn|kdnkCAO}*Ah;#^8Z=F@vT4|XzR#<AW?b"
        ";8k8{V`HX;2e1AiZ=_Nh_sf(nui}lFAc_r5^J!8KW`0%lE~*&Ui+$CPP`Ay=8FgZvWnvKaW4aJabI3EwfBA#tajT"
        "GR#7zhkQteXqXIVLs+d=cr{q*9`BLfLl5;}YNk)q`>Fo?`TY8XT;<!G<&!+k*ZKKF=Rxh+ez{NgyS+vnwP=nAYS0"
        "*EXoz|Up&C^vLEorEF$&NO6(~X-1jZX@l(9w{W{eSr8f->pZFJ3RQaANOjcO2HIH80UQrrqAj1YnfEV@EhydqVvL"
        "e*~tuiIDgN?&!t6Oy2$O5)@tfrVX&1zr4E@Nb}=I;yCpk}{f8Lj|Q2Q(f|sl;aYWbqP=6>G-5$9+P+&qd16*_$r2"
        "pn&3$~8E(!uR~zWdzUkBcegEeU-PL!ae>&g+2~ZFRFTq>z7{F!k<@@FN1y0^i$PCS@+38H5AI_(L+CzMJIRN(9VT"
        "CQ0nBhG(SYV1VUg7~hVqNf}El7civbZZ?$(DGzT!zcRQb#-@Q4@_L6a~>u1S2u}Z<M_q-XK-!H2s(2beRs)_GY!i"
        "yL9)l8|-w4cSr|yHl3&g7pseti_P=RGjv^7bZNKWeYoyiKVO@V^6cwuaX<bIej)Us3b!E(_hA^8S9e!mSFrYLwcf"
        "AsI$WdE>(klS+1GZ!2CG3n2nT}!e~cdA9`ob=cyT-){|Ed=<M9",
    ),
    "IQ2_S": _Grid(
        (8, 25, 43),
        8,
        "c-jTQL2sf=0|4L|GD8MWGh`s>X)xH>{)!ng80={vXmn55&`o!L1sH6sCup?kz9(z8UtE9X_dEd9zyJZxKm!hrpaK"
        "N!!3s=)0u1zE12EWu1(<+27=l0G7qGw<<X{YDzy|~H1Kfa=RCcnINVc+&kxXSEp=@L(LzzfVp5(K1<XYa#Sh~`du"
        "W~6L<w%0Mu1zg!UGtjM*IL!A?(0pB>qTwVd3~w<`cO+sX-7+nXiEzk(Ub=ClfF<$8=BFOe$j+_^hBSjL*M9{#?+<"
        "n^oiPZN$=<*9Z_IvV~j9oqYXDlQyF4bW@?mSrZ*dd&CV>$#LUgmSY~T-Gd45hn}LxX?Yge)P*-%Y%et^jI<IrOxN"
        "|$Z1ELm22%!ZRM^OnPR^lp@V4@crfyGWN#6--+P*@@tzPJfl(h`+zS(H(kmaxpquuMv?bjrB2OK{d_e%_y_=j$1t"
        "f1V|xs6!<}s6_>eP>KTdi6ClFhC-Ae51r66a?l%Eqk9x17ri4JEzuo%L?Z-rt&JA?thMI)s4GqMUa$02E6sGTHyZ"
        "1mUg(LQ>!G&vR_A)GXWG}YrES@wwrJBfXknYRN$a(7>$Y|ac+CwLTyxHkyyAqf_>?Qoc+WQ+^BrIC37_*JxA>Ole"
        "9ULu=L0SaT69HOprS2`A}Z1%C}7bPSrHaV;T2917j9t};AoEGsE_<ej_Syc_-Gw(M;Xzmi^>Q^MHEG81fwR(qA*G"
        "#FLI(dawAaHm8nFfD_)UGRjk6*uj)|IzvwUgd-@AVO$-r46Hbn#B805Sl_<gpCOfhqLt>E&@yU(Il%^<c(;`h%m^"
        "NvaCaIS?X`H&Lor3*&zu!;y*FD?g{dj-bKkQ{dgDxlo6cj-eq(KnCpb4@d43fYLoFER|zz)F5ti(#M_=>F5immYK"
        "&&pcKPx^^I;pg)wn3}1c@~N7#DV|=Yx2b%gFX(0Ya=z}b!|V8Zxk^Z32TO=x3kw**zc7UX{DcrTFoPldf(i8C2|h"
        "yyzQHw&p$l!egm>@}jv!FAGD;||xH_sz5w%w<r4&=W+9<4cYM~}-u7=7|Ta~M^nkiomlx%2&nzkvLs0kX_WKGy4j"
        "n_C$+_(*3H8V`GGt-Q-BdZu;d$wXzrWj*A+c3;_Y{4dM&W6llTb8pin=zjan9OL_Wo3r4HY>6yOS2$@S(9a1m?fE"
        ")IoZD~&fLt-KwtN!7rpLzPkPm}9`{!Nqn9BK%MgWaScFlShCv9!Cd|SxOhPYoLN~NSu&Fm@BQ|=&H)NwWY=bw}=3"
        "^tj=ok8eUjWzGV1YH}_=qb^@E))56f4Ydk2e_O9bVuGp5r05@D}HIjAz)#GNDPAlnF}Oq)4J9O@ag_O_C*Hk|bW@"
        "Byr*<b^>;0Cw6+rcVwq_Y=?KhcGgaM)a$&`Ltg6@UgV`-;6bnPGB5NJ&+{BF_FT{Qz@lE5g;?kXUyy}bumxUN3wf"
        "d^boxBO6PVN!GZ7O#;S(}Z6E?w<?};^$&-58R!)Neaedpf~-_oH@=OCwb3MX<>Cvc#XIiZs{p5r*KV>@78&&^!S^"
        "_<ViT+P`W&#n2-IekNK@a^>W_y&e%D295-hh(URY>0=}P_F43t>OA>eZPKPgFpTsc~9@r{rdjy9{jrgYW_X`16FM"
        "rOIX_CR%H=uWhskU*xFeOYhukU%gU{p<y$hQaT%kyjf*&n(>RD>+{9TN#!2kOaqPx+{5u9)vpsM1mT%RTZShvR)a"
        "~5TMQ-aBZsevebQ?EwLpO0f*KuRlb!`{qb#8Kz>zwB#S2@dZZsnI;zSDQ~{_+mr!Pt!Tn2*(%jq&&}mQVBvKCPej"
        "m&xV(vb`KG(x!H4BfGT=JF){C+Krvrp`F;C?bxyH+O`d5W~OI+re<u0XWujVN?*|{eEshg__c3*;cK7!#8*D^v2X"
        "bwzFg8JTEgYs@^J}1`j6p<yrXyM?(+`b{k{V~H$Qhj?f-#+8Jq`vupe9pYQP3~a2VVM@NxZEAI^vUVS2b8wukZIa"
        "(Fn%5gnls96gOjBk-g8k^Falm_8gHyx;G?#qE3}xBYE;8{clX{{v>J;v)",
    ),
    "IQ3_XXS": _Grid(
        (4, 12, 20, 28, 36, 44, 52, 62),
        4,
        "c-jGg0e}7g1OR{nKx7U;2n2vE1ps^tz#xVQ1cXQ^iiiw^$S{dW9Doo(2oNOzkVyj2Z4S^i4^X`V7~z0eMT(dmhG6"
        "aqAod5~z5*!Xgy>d^@S6a5hm3f0gSa3T0R$95C>DVX6v2!i0Td7kK$1xal!+l05d{=cDG<?J5E(&`nJt|e*^(im5"
        "n&3LsnV0_qZGLlkODv=LS!I<NGyUZB?2I(3ZS4$M52ler;7NY$^j%2B`#74B$DkR615^41*lpbsoJh5Vq&hUGO6k"
        "#raH%~Iv_AZL^6YDF+;dD!vM4k2(rtNy$c~W69qbxRW;Kkw%ZOrBVI5o!nCWlxO2}pvv0AxfKEiLPQ-LiM4Z5s?L"
        "ib7O_brw9D+k+no6v4!R({Jd`H0iL{kMEPz}J`jkMTRO;y!F*IfoyrRr7XLelLQSiMu&hLCLrm|~7N?pB##-p%PI"
        "qUCOHW<D$C2cUij1a!w#e2)<HSFv?h0s3EU@t-PlCj#^@itzWqB$_w",
    ),
    "IQ3_S": _Grid(
        (1, 3, 5, 7, 9, 11, 13, 15),
        4,
        "c-jE~1ONO00sue?0N?;XBm_W&3_u71fT#w*5Cs6R4*)a=Ko|vpJPE-300<z22!Mb{B#KA~hKT5b$gGJ7IE#o}fDj"
        "=H5a9q&WeiX$3Xly5&`}Ez@dHqG0nmL07$u5W351v}hS<%C7!`$B`GeTKfFNcLU@8cpP5~ft17IEmD1v~fN{py(g"
        "DA3(DB6eU!vb(;0`OM@@B@T6gMhe8jJR)sc$a_yAQS<B5J4msL8Kl*2o!-V7{SaLLDUn0To4H$mI=U+NraM#43^0"
        "-kx5jM$=r|;MH*4%5Rr)#(GeFBwGokB5*dM>83mSEDV~`PnAtIvnH`oPq7-3<65(zYA<_|HmJ%rjmT4-G=}wbr3m"
        "CEM88OomIb)D{N0Pa(lQ~<F`2ZpUU@8LOAVNeaLc}71XfA>bB*HK!0<a-MR4;-YC&IiS3P7MrWUfj`s){VA%21<9"
        "At(~zB9dt!((NM>buUsqDbfL?8lj?ENvN7FrrJ@VTG^r^;vk}GB;u|kB3>)vf}(0luIdt}Y9636LoPBaD{?z3Iw!"
        "2U52rd8qyr>2L!>@KNHW80I>S&o1Mo9Lcr(KwwhN%RODMLB5V4C~y~_bKQwcQFjWJUpuv>+)n`yqA4YM0@zZ<o;+"
        "hQ_f#x$cYHDek%qav_tM!Ks`xhvMU>&G)QBepvWw7ajc1b{?D2uOtJM8q&bL>xp6;KEE~#EcBe%y7d@w89i&Kvbn"
        "dlx;y2^+l8&NE{``TnWUSEy~;iL?nt%<Pt;VqRuQT#jIyY^cz5Yr@;Jk!+bzcMTAs^5LpHARYllY#UR!Vpwvw$)X"
        "iMb6(v@c4P4cAR2|{aUFq2!HQSwi(j|gWrA}QXM%=A7*KJc&J%iM}BxXjWV#aJ?h5+D>=;@9{Xx33{R#{=z0q9;S"
        ";U21ICR$)FV(9J~>NXQ%erMnZfPM!Ebcf7w2b6V(K=MzB_Ybi07lCkB#d4Pob5}w1->vswB6=rgaHke@uTu0kFK|"
        "C$`89_",
    ),
    "IQ1": _Grid(
        (-1, 0, 1),
        8,
        "c-jq@LCUgF001j8%vFX;wkpY}PLbi0Y^CCRsH+T>>=b^HQLQq3lC4ZKs#E^|31%}eOsy8xwA!Fn)a063BWtJHr1q"
        ")lHBe(~xMtTHwS7&fl{HkOYM0uq_N#T~+FYJ9^K|abUvq0N&6Bx1kLPe+&DA+S&*#&*F<0i?Jexc7S`<ZtsEEvnj"
        "84%c`b2sJB0u7zFlt2mNQlZviBJ?oRCI}E(JzuaOegJF9jW7XV5jQv9lN7+f{yba+|e}cs+rnIdudy(uIbuSBQ&6"
        "~8q~1nYi;eU+1gb5Y70%#kT%xd+Dhwdj`q-Y8guoo(v`jv*Z2yr;<bHMulY5+8dv4YU4v_F5Df-{Vqgx)!D%oVd<"
        "Oae4Di4nGzR;DFenFTKn*T~+2A+O*7BNJd+XlXT1#tU4c2h2uK9JiR@U4)TL)`rT`QtuP!xq(kj1H(6rVybK;ai^"
        "VHb^JUl@f@lm#lN;!@0tU(syJO{VEJdrhk;HR&eNgiW!jHu<LA44X=mYi7+=(`nA-j(nBZa#KFYraY3Da!=mMy8M"
        "(08OX8B%239#FSlh|?#f3Q$t$@p%LnF=9;`$CkR04Ye1He>P#yR~elQNofjeXe=P+lk%$i{slNm7{vt;g!#OO@I4"
        "4Eeb7?yzyW_;$%*vypaG8?AFa13I`Ou)RE71L)NX2(RPW)`MwGNx&!re~7o$+XOg`7tGvHgz*Gff<{u2~BMJW@V}"
        "-Z`x*VhGxUun_bf|1+z3;rebm?GBYzU-zH^VOvjw3om5M&shOtfD1D{N^q$t!zm!h(beKL<kirzFV(O=A%BOZZO~"
        "dq?-qJEXrYP;FyHp;fBWom$=ut9qN5lw@#8EYBkJJ%A%17bI7%3xe<cyl$!85&=xAZLU&!auv8+yQFJ?LT2_bRXL"
        "+1}UNc#3!QkT>>L-ox8@>sR{fz3wmimAu>+@rqyYCBD>G{t92lOL=9l_p3%m<bW(llO)L#X^|81L+T_TeNrWDvO("
        "@ifh<WxQsjkn$Qk(~wWYjdmfq4@{w?XHyM#+|SuNEizqFV6(pa{Z*)mu<%lT<=Do*mrJdvl<X>$6U^b<JYlYg>Li"
        "<59FPs$0MsMF;%JN-^tkLjg7uV?k>p59A(ZZGb^p4h8;dC%x6J+2q@Rz2sx-lny*wpQKJt)T@h)`FIAoh{p%S{ti"
        "naTc=1*4tWHed}TEEbZRBAMW1Wx=VNW4)5)|dJpg2`|aMkzwfn4G#N~ai8&!Br^#gUndlQRVJG&aG1*UqNjae=m&"
        "t7Mo2<9;mf3n+YnyD{ZM=nBb<1z_ZMZeIt!=gqw*9TMt$m`;;8T3a&*?Myd_MXIeDKHr*q_E{{}Ddr2Ysl|<um*I"
        "K3ZL_r**6D*5f*?i}k9m*7<r~=juUyRe#iL(p>6DS7|LBBvVSIk@S+5(p}n0x-^uY5|CI4N?7uxO0uP?^pzG;SGq"
        "|p=_nzIl2+11(*EQ><}dxT{-nS75B^nu{9pLD`Q!eazd3Ev9=)Y?dPqNMK(jQYF|E>P+NP)UmtN2}dPBG9BaLW^U"
        "eP;xu1C727rLx7x~ZqSr<1y+e{@NwbzM(%S0{9!vpUqVF6zFn>b!32xgP3!y{j9#pes73BR$gt{jEFtO#kWgL`&8"
        "QlbFdUc_quFmu!=I@|WnzFd-6<#0gAr;wR_CPNvBsF_JRj5|pfxe)34Pp*%E)uc0;k8@fYc2#4ZO9rD9`7!Hl0GU"
        "SHYFc><+xvRNXw{V*-<C^ZsUAjH@?$%x1eY(JnUDkyzc73<)o?Y9`-LHFdH}26zZsv~NmD_h8?#@l0^fP(7Pxus{"
        ")sugQPwweF=R}9lh%2!s4una(h$Yb@wnUxKi6H?9mVg8%e8MKC#EsYxh!_(Tu_7MC?tdr-U=0c&0|uBN1tZ`A5?J"
        "64Cg1}kKm#2lzy$;VAO<Xe00R;DpaLr3femsHf;}*R0yuy`1_D3<2mHW1zQ%{xj9>9G?!|wx9zSCcvoVZu?8oQWj"
        "*Yk#A7c~;@jLFv9advymSIgcWk;;XE?JA6upd@pX;x<w)@7e8!2*_LA&Xg&_1TJ5*)z+tHk-2{+h7H@WEGZU5u33"
        "AyJGvS!~WPgj9>?9@Cw(k31xVI3^ZX1J@|r4*n<|l!!4{s3I0JE>M(&r=t2Sl7(*69h@l95Siv?_ArEbs!zm2m7c"
        "O8I8gK(k*n$e=Ac7ej!vL;eA3E>>cd&-%IKmx##RI&?GG?%eN7%z8Ug8t(VGG~!1aGl~b)4WKcJUJv7~mMQ7-Eb?"
        "?Bfcnn8!8_@g5uah6TLAB~~!PZ+yWHe&8A2;f|<@S8**iMN=G!OYtM>;!u2wKx9QIVo?-*u`QlOUbMx%xDi|8QAF"
        "ZcT!}kz?nl1n7ryK>zUimF=Ucwy)4uK}zUvb{@ME9#p^tsh_x;LOecreI+z<VQZ}=Nu@i`y)nLqXe-|;)upfamhM"
        "OIdIueOz54J)?-6|8V2R(^G^>}pzlt3_2-#|l+hHLl*(s?yp_J8gSyt4+6wHf-az*sj`Yn{Vgsu)Sz!ZKpj~JL*+"
        "ks|VFom+DEqt6No9T@|QM#j3B`YOa3Ou3D-`6{#!rq3%@qoSwaN{Vbi6Gd$z7cy6DKvvSVP&ROOUyve8hi(m40e#"
        "_VSKVIjD{F4Vf%R?UXK40-|{><BampAwg-{Oxv$0I)D$NZaL@qK>BYxck{Y}q#L)b?!J*6qZ0ZNdgNYeO5`zOCB4"
        "ZQHpW+BbV+m$qUfJF^4(ZC`B1e%LcR%GbG>lleWL<lDTS>-jK$<{)QtnB!c`tGu1t`803j``pOOoXfL(oCi6T_wz"
        "^o%hRbhwWiWEp2BH0Rj1+9m@3op^f8@>ov<02;WF%n_i!85Ln+k5BpikyWJ4I@&=1?89e%@o*bU1Ng{!b1I^iyqz"
        "v*}MmA>@X{SsgJ6~EP&|JvX1d;4<V@%R0Gd~1!UF=!MGvT<rm8lQ&VAR3^-HgLml*o{VG-w+yQ12w3|r7>&#8rni"
        "$FpG5IEv$vKpcn3fSi}pszzcEVFZe~i2p7g;v)~rlB3L+!+CJJ3_Ql@Zll#+tvj6PCp56O<d*9ga_rkv1qdm31>}"
        "UJmp6PmBsY`c37j~<z+U2`pm+J=Ixv@45hH1QvyRkLuhGgi*&;SN&Km!}TQ5m+88&l(JER3#kGd4!cI2y<p8xKRi"
        "r8n<p-J~0Rb8pWZaf3JiR^8NFe*4~xn{s>K`nQ@82?L=JOo0?m!bJE8lAsGfU<F^Wg-~b+dqEIN0ST0F5oW?q&^F"
        "hNykR!!#@a|5dXsG24Y7$ga8qs64Zkrq*(TUHn_3x_gR&^ik}OZ<r2Le62}-uaWux4eLRprmq{>S<D}SZdl3QtO)"
        "bd(ZOKK%8w*^~bt7?U<Z_8*YEv}Wdf|k>oD;?#ktd*u>DkJ5kER~*eSGG!B(G@}g3adZ`E5348Y^AH*l%s-_v9eP"
        "7%0t;H+EG3-NAGAI>0@$qkHj%P!lQW1kKxfca>wkrJI=WdcjcO#$&I)>SLdD_;8+fFm=iglYjY}h=4`IZ-MAyiaf"
        "lmpD{jZtkcI}RKushg2AL>D9$F#`ZP5owh(<a}kc$WeP>fgv5k?~NQH4~*BOB!?L<?jf0V(K+ID}A!0`x`{x*!M5"
        "&=1YCPS(uK%*)8^o^3Nd8)j|>vN(eo&iu^IrrAF0W}B?cjv1Gste-uyU8arGu{XBH(l{9t<9H0mcwCM7u{}1%$~Y"
        "SbV`tn6uE9EJ28X~5M!_o}gJsYQ?m<2H3-n+ZJOdE00Ss{92j{>J^57dRf^N_XjsXhZ!76wJ+S`0vZ~C3Q-8b=uZ"
        "}F|ZjkogV-sqjZYg9xHsDd&nk~&cn>O<)ipjZl1KGmT1lt7gfqA2P@&8Q!xt=21f#jMhmw|cFTmAe8fxDr>@N?q|"
        "QW7S$6SJ^69MVG;)xHK=`<#d@`J{SE0F8JbK>`UXazX+G|f-cnMa+zIz7q4&ir9Ry!`fMNe#eUUS`*uI?Py1ot=w"
        "F?+({v7w>5QDavvvL)-2o2kKnFX%V>@4G;dC9txj7r>=pbkOe?H|$`glE-59>iclE?EAKi~sD#7Fyae%v0d2YO_W"
        ";IVr2ACE_E7R?5;Vn)tRv&rl;12cApXa1})+s}kqIYTpQcA3p)znQjUcHVBevv$&s*uh=3Q+N3;+_iSuuJ((5gJ1"
        "C@f2ZH%_xXVz`@_G+Z~qg1<q!R+-{m*^{eJ%do%~Sr",
    ),
}
